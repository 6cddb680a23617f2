package clocks

import (
	"errors"
	"fmt"
	"time"
)

// JumpNotifier is what a Clock implements beyond the four methods when it can tell, as
// soon as it happens, that wall time and elapsed time have moved apart: somebody has set
// the clock, or the machine was suspended, when the elapsed time stands still. No timer
// notices either. A leader whose clock tells of it sleeps until something is due; with any
// other it wakes every second to look. [System] and [Kernel] need no such method, see
// [NotifyJump]: a clock that embeds one of them, with another Now, must not have it by that.
type JumpNotifier interface {
	// NotifyJump has f called soon after each jump, until stop is called: within
	// milliseconds of the setting, or of the resume. f may be called without a jump, and
	// once more while stop is called. It must return at once; calls of it do not overlap.
	// A clock that is slewed, to run a little faster or slower for a while, does not jump.
	//
	// An error says that this clock cannot tell: f is never called then, and stop is nil.
	NotifyJump(f func()) (stop func(), err error)
}

// NotifyJump has f called when clock jumps, as [JumpNotifier] says, or returns an error
// and a nil stop when clock cannot tell. The system's clock can on Linux, and everywhere inside
// a testing/synctest bubble, where there is nothing to tell: a bubble's clock does not jump. All who ask for the system's share one file descriptor and one
// goroutine, which are there while somebody asks.
func NotifyJump(clock Clock, f func()) (stop func(), err error) {
	switch c := clock.(type) {
	case nil, SystemClock, KernelClock:
		if now := time.Now(); now == now.Round(0) {
			return func() {}, nil // nor may anybody wait here for what comes from outside
		}
		return systemJumps.add(f)
	case JumpNotifier:
		return c.NotifyJump(f)
	}
	return nil, fmt.Errorf("clocks: a %T does not tell of its jumps: %w", clock, errors.ErrUnsupported)
}
