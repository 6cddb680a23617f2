package cli

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
)

// commands are what signals reach.
type commands interface {
	Signal(syscall.Signal) // passes it on
	StopBy(syscall.Signal) // sets by which one they will be asked to end
	Kill()
}

// signals has signals end the program by cancel, or reach the command of r, which
// may be nil. It returns how to stop that.
func (a *app) signals(cancel context.CancelCauseFunc, r commands) (stop func()) {
	return a.signalsTo(cancel, r, func() {
		if r != nil {
			r.Kill()
		}
	})
}

// signalled is the cause of an end that a signal asked for.
type signalled struct{ signal syscall.Signal }

func (s *signalled) Error() string {
	return fmt.Sprintf("%v by a signal: %v", runner.ErrStopped, s.signal)
}
func (s *signalled) Unwrap() error { return runner.ErrStopped }

// Other causes of an end.
var (
	errNoReader = fmt.Errorf("%w: nobody reads on", runner.ErrStopped) // the reader of the output has closed it
	errFinished = errors.New("the command has ended")                  // for good
	errTimeout  = errors.New("--timeout is over")
	errHappened = errors.New("it has happened")
)

// ended is nil if somebody asked for the end.
func ended(err error) error {
	if errors.Is(err, runner.ErrStopped) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// late says why ctx has ended, if that is why err is.
func late(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}
