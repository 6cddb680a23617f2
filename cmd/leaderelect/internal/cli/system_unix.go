//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
)

// signalsTo is signals with what is done by the second one that asks for the end.
func (a *app) signalsTo(cancel context.CancelCauseFunc, r commands, kill func()) (stop func()) {
	reaped := proc.Reap()
	c := make(chan os.Signal, 16)
	failed := make(chan os.Signal, 1) // a write has, which will do; the log may be written after stop
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP}
	if r != nil {
		all = append(all, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	}
	for _, s := range all {
		if !signal.Ignored(s) { // as nohup(1) has it; Go tells it of HUP and INT alone
			signal.Notify(c, s)
		}
	}
	for _, s := range []os.Signal{syscall.SIGPIPE, syscall.SIGXFSZ} {
		if !signal.Ignored(s) {
			signal.Notify(failed, s)
		}
	}
	attended := hasTerminal()
	done := make(chan struct{})
	go func() {
		asked := false
		for {
			var s syscall.Signal
			select {
			case <-done:
				return
			case got := <-c:
				s = got.(syscall.Signal)
			}
			switch {
			case s == syscall.SIGTSTP:
				r.Signal(s)
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			case s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT || s == syscall.SIGHUP && (attended || r == nil):
				if asked {
					kill()
				}
				asked = true
				if r != nil {
					if s == syscall.SIGHUP {
						r.Signal(s) // what does not end by it is asked once more
						s = syscall.SIGTERM
					}
					r.StopBy(s)
				}
				cancel(&signalled{s})
			default:
				r.Signal(s)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
		reaped()
	}
}

// hasTerminal reports whether this process belongs to a terminal, whose end a HUP
// then tells.
func hasTerminal() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}

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

// journalled reports whether out is the stream that systemd reads for its journal.
func journalled(out io.Writer) bool {
	file, is := out.(*os.File)
	stream := os.Getenv("JOURNAL_STREAM") // device:inode
	if !is || stream == "" {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	return is && stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

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

// openFiles is how many files this process may have open.
func openFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(uint64(limit.Cur), 1<<20))
}
