//go:build !unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Supported reports whether commands can be run on this system.
const Supported = false

// Deadline is a moment on two clocks, of which the earlier counts: wall time can be
// set, and steady time cannot.
type Deadline struct{ wall, steady time.Time }

// At is the deadline at the wall time t, but not later than limit from now by the
// steady clock.
func At(t time.Time, limit time.Duration) Deadline {
	now := time.Now()
	return Deadline{wall: t.Round(0), steady: now.Add(min(t.Round(0).Sub(now.Round(0)), limit))}
}

// Sub is the deadline d earlier.
func (l Deadline) Sub(d time.Duration) Deadline {
	return Deadline{wall: l.wall.Add(-d), steady: l.steady.Add(-d)}
}

// Left is how long it is until the deadline; negative once it is past.
func (l Deadline) Left() time.Duration {
	now := time.Now()
	return min(l.wall.Sub(now.Round(0)), l.steady.Sub(now))
}

// Spec says what to run.
type Spec struct {
	Args                  []string
	Env                   []string
	Stdin, Stdout, Stderr *os.File
	Grace                 time.Duration
	Until                 Deadline
	Late                  time.Duration
	Setuid                bool
	Ready                 *Ready
	Remove                []string
	Logger                Logger
}

// Logger is what is needed of a *slog.Logger.
type Logger interface {
	Warn(msg string, args ...any)
	Error(msg string, args ...any)
}

// Ready is never made on this system.
type Ready struct{}

// Prepare returns ErrUnsupported.
func Prepare(_, _, _ *os.File) (*Ready, error) { return nil, ErrUnsupported }

// Close does nothing.
func (*Ready) Close() {}

// Process is never made on this system.
type Process struct{}

// ErrUnsupported is what Start returns.
var ErrUnsupported = errors.New("commands cannot be run on this system: leaderelect cannot end all that they start there; use watch, status, sidecar without a command, or a Unix")

// Start fails.
func Start(Spec) (*Process, error) { return nil, ErrUnsupported }

// Guard fails.
func Guard() int {
	fmt.Fprintln(os.Stderr, "leaderelect:", ErrUnsupported)
	return 2
}

// Check fails.
func Check() error { return ErrUnsupported }

// Find fails.
func Find(string, bool) (string, error) { return "", ErrUnsupported }

// CodeOf is the exit code for a command that Find does not find.
func CodeOf(error) int { return CodeCannotStart }

// Reap does nothing: there are no orphans to await.
func Reap() (stop func()) { return func() {} }

func (*Process) Extend(Deadline)                    {}
func (*Process) Signal(syscall.Signal)              {}
func (*Process) Stop(syscall.Signal, time.Duration) {}
func (*Process) Kill()                              {}
func (*Process) Done() <-chan struct{}              { return nil }
func (*Process) Pid() int                           { return 0 }
func (*Process) Status() Status                     { return Status{} }
