// Package networkfs recognizes file systems of other machines, whose locks cannot be trusted.
package networkfs

import "syscall"

const mntLocal = 0x00001000 // MNT_LOCAL of sys/mount.h: stored locally

// Kind names the kind of dir's file system. It is empty if the system says that it is a local one.
func Kind(dir string) (kind string, err error) {
	var st syscall.Statfs_t
	for {
		if err = syscall.Statfs(dir, &st); err != syscall.EINTR {
			break
		}
	}
	if err != nil || st.Flags&mntLocal != 0 {
		return "", err
	}
	name := make([]byte, 0, len(st.Fstypename))
	for _, c := range st.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return string(name) + " (not local)", nil
}
