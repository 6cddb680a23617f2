// Package networkfs recognizes file systems of other machines, whose locks cannot be trusted.
package networkfs

import "syscall"

// networkKinds are the file systems that are, or may be, on another machine, by
// the number that statfs(2) gives: linux/magic.h, and for those that are not in
// the kernel their own sources.
var networkKinds = map[uint32]string{
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x65735546: "FUSE (sshfs, s3fs, virtiofs and others)",
	0x01021997: "9p",
	0x5346414f: "AFS",
	0x6b414653: "kAFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x73757245: "Coda",
	0x0000564c: "NCP",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x47504653: "GPFS",
	0x19830326: "BeeGFS",
	0x20030528: "OrangeFS",
	0x61636673: "ACFS",
	0xaad7aaea: "PanFS",
	0x786f4256: "VirtualBox shared folder",
	0xbacbacbc: "VMware shared folder",
	0x7c7c6673: "Parallels shared folder",
}

// Kind names the kind of dir's file system. It is empty if that is a local one.
func Kind(dir string) (kind string, err error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if err != syscall.EINTR {
			return networkKinds[uint32(st.Type)], err
		}
	}
}
