//go:build !unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// steadyClock is the process's own.
const steadyClock = 0

var begun = time.Now()

func clockGettime(int) (nanoseconds int64, err error) { return int64(time.Since(begun)), nil }

func checkSystem() error { return ErrUnsupported }

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

// Find fails.
func Find(string, bool) (string, error) { return "", ErrUnsupported }

// PassOn is never called on this system.
func PassOn(*os.File) error { return ErrUnsupported }

// CodeOf is the exit code for a command that Find does not find.
func CodeOf(error) int { return CodeCannotStart }

// Reap does nothing: there are no orphans to await.
func Reap() (stop func()) { return func() {} }

func (*Process) Extend(Deadline)                    {}
func (*Process) Signal(syscall.Signal)              {}
func (*Process) Stop(syscall.Signal, time.Duration) {}
func (*Process) Kill()                              {}
func (*Process) Done() <-chan struct{}              { return nil }
func (*Process) Status() Status                     { return Status{} }
