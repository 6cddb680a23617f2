package leaderelection

import (
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// The shortest pauses that any setting leads to: between two extensions, and
// between two polls.
const (
	minInterval = time.Millisecond
	minPoll     = 10 * time.Millisecond
)

// maxSlice is the longest a leader sleeps before it looks at both its clocks
// again: a suspended machine or a stepped clock is noticed within it.
const maxSlice = time.Second

// maxTellingSlice is the same with a Clock that tells of its jumps: there is only its drift
// to be noticed, which is 30 ms in this time.
const maxTellingSlice = time.Minute

// maxApart is how far its clocks may have run apart while it sleeps before it works
// out anew for how long: the end of a view by the wall clock is waited for by the
// monotonic one.
const maxApart = time.Millisecond / 2

// instant is one look at a campaign's clock.
type instant struct {
	wall time.Time     // without: to be compared with other machines' times
	mono time.Duration // elapsed since the loop began, whatever is done to the wall clock
}

// timekeeper reads both times off a Clock: the wall time, and the time elapsed since it
// was made. A campaign's loop and its views share one. It does not change.
type timekeeper struct {
	clock  clocks.Clock
	system bool             // clock is the system's: asked without an indirect call
	mono   clocks.Monotonic // nil: its times carry a monotonic reading
	epoch  time.Time
	start  time.Duration
}

func newTimekeeper(clock clocks.Clock) *timekeeper {
	t := &timekeeper{clock: clock, system: isSystem(clock), epoch: clock.Now()}
	if m, ok := clock.(clocks.Monotonic); ok {
		t.mono, t.start = m, m.Monotonic()
	}
	return t
}

// look is one look at both sides of the clock. The wall time may carry a monotonic
// reading.
func (t *timekeeper) look() (wall time.Time, elapsed time.Duration) {
	if t.system {
		wall = time.Now()
	} else {
		wall = t.clock.Now()
	}
	if t.mono != nil {
		return wall, t.mono.Monotonic() - t.start
	}
	return wall, wall.Sub(t.epoch)
}

func (t *timekeeper) now() instant {
	wall, elapsed := t.look()
	return instant{wall: wall.Round(0), mono: elapsed}
}

// endAfter is the position of a view that ends at the wall time wall, and not
// later than left after at by the monotonic clock.
func endAfter(at instant, left time.Duration, wall time.Time) *viewState {
	return &viewState{wall: wall, wallNS: wall.UnixNano(), mono: at.mono + left}
}

// tighten is s, which ends no later by the monotonic clock than the wall clock says
// now: where the wall clock has run ahead, the machine was suspended and the monotonic
// clock stood still. Without wall clocks to compare, a later set-back would hide it. Where
// the wall clock was set back already, by more than s allows, s is over: a later suspend
// would be hidden.
func tighten(s *viewState, at instant) *viewState {
	left := s.mono - at.mono
	lost := left - time.Duration(s.wallNS-at.wall.UnixNano())
	if s.apart > 0 && -lost > s.apart {
		lost = left
	}
	if lost <= 0 {
		return s
	}
	c := *s
	c.mono -= lost
	return &c
}

// isSystem reports whether clock is the machine's own, or its bubble's: that of
// package time.
func isSystem(clock clocks.Clock) bool {
	switch clock.(type) {
	case clocks.SystemClock, clocks.KernelClock:
		return true
	}
	return false
}

// hasMonotonic reports whether clock tells elapsed time apart from wall time. In a
// testing/synctest bubble no time has a monotonic reading, and no wall clock is set.
func hasMonotonic(clock clocks.Clock) bool {
	if _, ok := clock.(clocks.Monotonic); ok || clock == nil || isSystem(clock) {
		return true
	}
	carries := func(t time.Time) bool { return t != t.Round(0) }
	return carries(clock.Now()) || !carries(time.Now())
}
