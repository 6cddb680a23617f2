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
func (a *app) signals(cancel context.CancelCauseFunc, _ *runner.Runner) (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	done := make(chan struct{})
	go func() {
		select {
		case <-c:
			cancel(&signalled{syscall.SIGINT})
		case <-done:
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}
