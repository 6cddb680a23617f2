//go:build unix

package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// inherited is a file that the parent process has left open for this program. What it starts
// itself does not have it any more.
func inherited(fd int) (*os.File, error) {
	if fd < 3 {
		return nil, errors.New("want 3 or more: 0, 1 and 2 are the standard files")
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 { // this process's own all have the flag
		return nil, errors.New("it is not open: the program that starts leaderelect must open it")
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "ready"), nil
}
