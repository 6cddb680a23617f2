package loop

import (
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Timekeeper reads both times of a Clock: the wall time, and the time elapsed since the Timekeeper was made. It does not
// change.
type Timekeeper struct {
	Clock  clocks.Clock
	System bool      // Clock is the system's: read without an indirect call
	Epoch  time.Time // when it was made

	mono  clocks.Monotonic // nil: its times carry a monotonic reading
	start time.Duration
}

// NewTimekeeper returns a Timekeeper of clock.
func NewTimekeeper(clock clocks.Clock) Timekeeper {
	t := Timekeeper{Clock: clock, System: isSystem(clock), Epoch: clock.Now()}
	if m, ok := clock.(clocks.Monotonic); ok {
		t.mono, t.start = m, m.Monotonic()
	}
	return t
}

// Look reads both times at once. The wall time may carry a monotonic reading.
func (t *Timekeeper) Look() (wall time.Time, elapsed time.Duration) {
	if t.System {
		wall = time.Now()
	} else {
		wall = t.Clock.Now()
	}
	if t.mono != nil {
		return wall, t.mono.Monotonic() - t.start
	}
	return wall, wall.Sub(t.Epoch)
}

// isSystem reports whether clock is the clock of package time: the machine's own, or its bubble's.
func isSystem(clock clocks.Clock) bool {
	switch clock.(type) {
	case clocks.SystemClock, clocks.KernelClock:
		return true
	}
	return false
}

// HasMonotonic reports whether clock measures elapsed time independently of its wall time. In a
// testing/synctest bubble no time has a monotonic reading, but nobody sets the wall clock either.
func HasMonotonic(clock clocks.Clock) bool {
	if _, ok := clock.(clocks.Monotonic); ok || clock == nil || isSystem(clock) {
		return true
	}
	carries := func(t time.Time) bool { return t != t.Round(0) }
	return carries(clock.Now()) || !carries(time.Now())
}
