//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// readerGone calls gone once nobody can read what is written to f any more: the other end of a
// pipe, a socket or a terminal was closed. A write would tell only when there is something to
// write. It waits until the program ends.
func readerGone(f *os.File, gone func()) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	go func() {
		_ = raw.Control(func(fd uintptr) {
			// POLLERR and POLLHUP are told unasked; of a file neither ever comes.
			on := []unix.PollFd{{Fd: int32(fd)}}
			for {
				_, err := unix.Poll(on, -1)
				switch {
				case err == unix.EINTR:
				case err == nil && on[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0:
					gone()
					return
				default: // it is closed here, or cannot be waited for
					return
				}
			}
		})
	}()
}
