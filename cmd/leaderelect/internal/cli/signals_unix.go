//go:build unix

package cli

import (
	"context"
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
