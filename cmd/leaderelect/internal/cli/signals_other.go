//go:build !unix

package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
)

// signalled is the cause of an end that a signal asked for.
type signalled struct{ signal syscall.Signal }

func (s *signalled) Error() string {
	return fmt.Sprintf("%v by a signal: %v", runner.ErrStopped, s.signal)
}
func (s *signalled) Unwrap() error { return runner.ErrStopped }

// signals has an interrupt end the program by cancel. It returns how to stop that.
func (a *app) signals(cancel context.CancelCauseFunc, r commands) (stop func()) {
	return a.signalsTo(cancel, r, func() {})
}

// signalsTo is signals with what is done by the second interrupt.
func (a *app) signalsTo(cancel context.CancelCauseFunc, _ commands, kill func()) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	done := make(chan struct{})
	go func() {
		for asked := false; ; asked = true {
			select {
			case <-c:
				if asked {
					kill()
				}
				cancel(&signalled{syscall.SIGINT})
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}

// openFiles is how many files this process may have open.
func openFiles() int { return 1024 }
