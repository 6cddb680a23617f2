package leaderelection

import "time"

// horizon is a moment by both of a campaign's clocks: it has come when both have
// reached it. A part that does not matter is zero.
type horizon struct {
	wall time.Time     // for what other machines' clocks have said
	mono time.Duration // for what only one's own monotonic clock may measure
}

// reached says whether the horizon has come at the instant at.
func (h horizon) reached(at instant) bool {
	return !at.wall.Before(h.wall) && at.mono >= h.mono
}

// and is when both have come.
func (h horizon) and(o horizon) horizon {
	if o.wall.After(h.wall) {
		h.wall = o.wall
	}
	h.mono = max(h.mono, o.mono)
	return h
}

// until asks for a look when h has come.
func (a *alarm) until(h horizon) {
	switch {
	case a.now.wall.Before(h.wall):
		a.atWall(h.wall)
	case a.now.mono < h.mono:
		a.at(h.mono)
	}
}

// ends is when the term of e, held or reserved, has run out for the clock of the
// one who wrote it: its TermExpiry. Where wall clocks must not be compared, it is
// a whole term after the record was last seen to change, when it was written
// already, by one's own monotonic clock.
func (f *follower) ends(e *RaceEntry) horizon {
	if f.unsynchronized || e.Unsynchronized {
		return horizon{mono: f.seen + f.termOf(e)}
	}
	return horizon{wall: e.TermExpiry}
}

// over is when the term of e has run out for every clock that keeps within
// bounds: MaxClockSkew later, or what two monotonic clocks are allowed to drift
// apart in a term.
func (f *follower) over(e *RaceEntry) horizon {
	h := f.ends(e)
	if h.mono > 0 {
		h.mono += drift(f.termOf(e), f.skew)
	} else {
		h.wall = h.wall.Add(f.skew)
	}
	return h
}

// termOf is the term that e was written for.
func (f *follower) termOf(e *RaceEntry) time.Duration {
	if e.TermLength > 0 {
		return e.TermLength
	}
	return f.term
}

// drift is how much longer than a term a challenger waits that cannot compare
// wall clocks: MaxClockSkew, and at least a hundredth of the term. Crystals are
// within a ten-thousandth, and the kernel lets NTP turn a clock by a two-thousandth.
func drift(term, skew time.Duration) time.Duration { return max(skew, term/100) }
