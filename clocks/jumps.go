package clocks

import (
	"errors"
	"time"
)

// JumpNotifier is what a Clock implements beyond the four methods when it can tell, as
// soon as it happens, that wall time and elapsed time have moved apart: somebody has set
// the clock, or the machine was suspended, when the elapsed time stands still. No timer
// notices either. A leader whose Clock tells it sleeps until something is due; with any
// other it wakes every second to look.
type JumpNotifier interface {
	// NotifyJump has f called soon after each jump, until stop is called: within
	// milliseconds of the setting, or of the resume. f may be called without a jump, and
	// once more while stop is called. It must return at once; calls of it do not overlap.
	// A clock that is slewed, to run a little faster or slower for a while, does not jump.
	//
	// An error says that this clock cannot tell: f is never called then, and stop is nil.
	NotifyJump(f func()) (stop func(), err error)
}

var _ JumpNotifier = SystemClock{}

// NotifyJump implements [JumpNotifier] on Linux, outside of testing/synctest bubbles: a
// bubble's clock does not jump, and nobody may wait there for what comes from outside.
// All who ask share one file descriptor and one goroutine, which are there while
// somebody asks.
func (SystemClock) NotifyJump(f func()) (stop func(), err error) {
	if now := time.Now(); now == now.Round(0) {
		return nil, errBubble
	}
	return systemJumps.add(f)
}

var errBubble = errors.New("clocks: no jumps are told of inside a testing/synctest bubble, where there are none")
