package clocks

import (
	"errors"
	"fmt"
	"time"
)

// JumpNotifier reports when wall time and elapsed time have moved apart. A [Clock] implements it
// if it can tell that as soon as it happens. Somebody has then set the clock, or the machine was
// suspended, so that the elapsed time stood still. No timer notices either.
//
// If a leader's clock is a JumpNotifier, the leader sleeps until something is due. With any
// other clock it wakes every second to look. [System] and [Kernel] do not have this method; see
// [NotifyJump]. So a clock that embeds one of them, with another Now, does not get the
// method by accident.
type JumpNotifier interface {
	// NotifyJump arranges that f is called soon after each jump, until stop is called. Soon
	// means within milliseconds of the setting, or of the resume. f may be called without a
	// jump, and once more while stop is called. It must return at once. Calls of f do not
	// overlap. A clock that is slewed, to run a little faster or slower for a while, does
	// not jump.
	//
	// An error means that this clock cannot tell. Then f is never called, and stop is nil.
	NotifyJump(f func()) (stop func(), err error)
}

// NotifyJump arranges that f is called when clock jumps, as [JumpNotifier] says. If clock cannot
// tell, NotifyJump returns an error and a nil stop.
//
// The system's clock can tell on Linux. Inside a testing/synctest bubble it can everywhere, but
// never calls f: a bubble's clock does not jump. All callers for the system's clock share one
// file descriptor and one goroutine, which exist only while there are callers.
func NotifyJump(clock Clock, f func()) (stop func(), err error) {
	switch c := clock.(type) {
	case nil, SystemClock, KernelClock:
		if now := time.Now(); now == now.Round(0) {
			return func() {}, nil // a bubble: nothing in it may wait for an event from outside
		}
		return systemJumps.add(f)
	case JumpNotifier:
		return c.NotifyJump(f)
	}
	return nil, fmt.Errorf("clocks: a %T does not tell of its jumps: %w", clock, errors.ErrUnsupported)
}
