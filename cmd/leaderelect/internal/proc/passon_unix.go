//go:build unix

package proc

import (
	"os"
	"syscall"
)

// passedOn is from which number on files are that this program passes on to what it starts: programs
// give the lower ones to their own children.
const passedOn = 100

// PassOn has every process that this one starts from now on, guards and commands above all, inherit f.
func PassOn(f *os.File) error {
	for _, least := range []uintptr{passedOn, 3} {
		fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD, least)
		if errno == 0 && fd < mostInherited {
			return nil
		}
		if errno == 0 {
			_ = syscall.Close(int(fd))
		} else if errno != syscall.EINVAL { // EINVAL: so many files may not be open
			return errno
		}
	}
	return syscall.EMFILE
}
