//go:build !unix

package proc

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// Supported: commands can be run on this system.
const Supported = false

// Deadline is a moment by which a command must be dead.
type Deadline struct{}

// At is a Deadline.
func At(time.Time, time.Duration) Deadline { return Deadline{} }

// Sub is the deadline d earlier.
func (l Deadline) Sub(time.Duration) Deadline { return l }

// Left is how long it is until the deadline.
func (l Deadline) Left() time.Duration { return 0 }

// Spec says what to run.
type Spec struct {
	Args                  []string
	Env                   []string
	Stdin, Stdout, Stderr *os.File
	Grace                 time.Duration
	Until                 Deadline
	Late                  time.Duration
	Logger                *slog.Logger
}

// Process is never made on this system.
type Process struct{}

// ErrUnsupported is what Start returns.
var ErrUnsupported = errors.New("commands cannot be run on this system: leaderelect cannot end all that they start there; use watch, status, sidecar without a command, or a Unix")

// Start fails.
func Start(Spec) (*Process, error) { return nil, ErrUnsupported }

// Guard fails.
func Guard([]string) int {
	fmt.Fprintln(os.Stderr, "leaderelect:", ErrUnsupported)
	return 2
}

func (*Process) Extend(Deadline)                    {}
func (*Process) Signal(syscall.Signal)              {}
func (*Process) Stop(syscall.Signal, time.Duration) {}
func (*Process) Kill()                              {}
func (*Process) Done() <-chan struct{}              { return nil }
func (*Process) Pid() int                           { return 0 }
func (*Process) Status() Status                     { return Status{} }
