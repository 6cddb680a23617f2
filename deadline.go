package leaderelection

import "time"

// deadline is a moment by both of a campaign's clocks: it has come when both have
// reached it, or when the monotonic one has reached sooner. A part that does not
// matter is zero.
type deadline struct {
	wall   time.Time     // for what other machines' clocks have said
	mono   time.Duration // for what only one's own monotonic clock may measure
	sooner time.Duration
}

// reached reports whether the deadline has come at the instant at.
func (h deadline) reached(at instant) bool {
	return !at.wall.Before(h.wall) && at.mono >= h.mono || h.sooner > 0 && at.mono >= h.sooner
}

// and is when both have come.
func (h deadline) and(o deadline) deadline {
	switch {
	case h == deadline{}:
		return o
	case o == deadline{}:
		return h
	}
	if o.wall.After(h.wall) {
		h.wall = o.wall
	}
	h.mono = max(h.mono, o.mono)
	if h.sooner > 0 && o.sooner > 0 {
		h.sooner = max(h.sooner, o.sooner)
	} else {
		h.sooner = 0
	}
	return h
}

// until asks for a look when h has come.
func (a *alarm) until(h deadline) {
	if h.sooner > 0 {
		a.at(h.sooner)
	}
	switch {
	case a.now.wall.Before(h.wall):
		a.atWall(h.wall)
	case a.now.mono < h.mono:
		a.at(h.mono)
	}
}

// alarm gathers the moments at which a loop must look again, and keeps the
// earliest.
type alarm struct {
	now instant
	in  time.Duration
}

func newAlarm(now instant) alarm { return alarm{now: now, in: time.Hour} }

// at asks for a look at an elapsed time.
func (a *alarm) at(mono time.Duration) { a.in = min(a.in, max(mono-a.now.mono, 0)) }

// atWall asks for a look at a wall time. It rounds up, and looks again within
// the hour: the clock may be stepped.
func (a *alarm) atWall(wall time.Time) { a.in = min(a.in, max(wall.Sub(a.now.wall), 0)) }
