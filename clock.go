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

// maxSlice is the longest time that a leader sleeps before it looks at both its clocks again. So it
// notices a suspended machine or a stepped clock within this time.
const maxSlice = time.Second

// maxTellingSlice is maxSlice for the system's clock, if it reports its jumps. Then the leader has only its
// drift to notice, which is 30 ms in this time.
const maxTellingSlice = time.Minute

// maxLate is how late a leader's timer may be set, after the look at the clock that it goes by.
const maxLate = 10 * time.Millisecond

// maxApart is how far a leader's clocks may run apart while it sleeps. If they run apart further,
// it computes again how long to sleep. It waits by the monotonic clock for the end of a view by the
// wall clock.
const maxApart = time.Millisecond / 2

// timekeeper reads both times of a Clock: the wall time, and the time elapsed since the timekeeper
// was made. A campaign's loop and its views share one. It does not change.
type timekeeper struct {
	clock  clocks.Clock
	system bool             // clock is the system's: read without an indirect call
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

// look reads both times at once. The wall time may carry a monotonic reading.
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

// isSystem reports whether clock is the clock of package time: the machine's own, or its bubble's.
func isSystem(clock clocks.Clock) bool {
	switch clock.(type) {
	case clocks.SystemClock, clocks.KernelClock:
		return true
	}
	return false
}

// hasMonotonic reports whether clock measures elapsed time independently of its wall time. In a
// testing/synctest bubble no time has a monotonic reading, but nobody sets the wall clock either.
func hasMonotonic(clock clocks.Clock) bool {
	if _, ok := clock.(clocks.Monotonic); ok || clock == nil || isSystem(clock) {
		return true
	}
	carries := func(t time.Time) bool { return t != t.Round(0) }
	return carries(clock.Now()) || !carries(time.Now())
}

// alarm collects the moments at which a loop must look again, and keeps the earliest.
type alarm struct {
	now instant
	in  time.Duration
}

func newAlarm(now instant) alarm { return alarm{now: now, in: time.Hour} }

// at sets the alarm for an elapsed time.
func (a *alarm) at(mono time.Duration) { a.in = min(a.in, max(mono-a.now.mono, 0)) }

// atWall sets the alarm for a wall time. The loop looks again within the hour in any case, since
// the clock may be stepped.
func (a *alarm) atWall(wall time.Time) { a.in = min(a.in, max(wall.Sub(a.now.wall), 0)) }

// until sets the alarm for the end of a claim.
func (a *alarm) until(e end) {
	if e.reached(a.now) {
		return
	}
	if e.mono != 0 {
		a.at(e.mono)
	}
	if !e.wall.IsZero() {
		a.atWall(e.wall)
	}
}
