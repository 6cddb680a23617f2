package leaderelection

import "time"

// horizon is a moment by both of a campaign's clocks: it has come when both have
// reached it, or when the monotonic one has reached sooner. A part that does not
// matter is zero.
type horizon struct {
	wall   time.Time     // for what other machines' clocks have said
	mono   time.Duration // for what only one's own monotonic clock may measure
	sooner time.Duration
}

// reached reports whether the horizon has come at the instant at.
func (h horizon) reached(at instant) bool {
	return !at.wall.Before(h.wall) && at.mono >= h.mono || h.sooner > 0 && at.mono >= h.sooner
}

// and is when both have come.
func (h horizon) and(o horizon) horizon {
	switch {
	case h == horizon{}:
		return o
	case o == horizon{}:
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
func (a *alarm) until(h horizon) {
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

// ends is when the term of e, held or reserved, has run out for the clock of the
// one who wrote it: its TermExpiry. If wall clocks must not be compared, it is
// a whole term after that term was first seen, when it was written already, by
// one's own monotonic clock.
func (f *follower) ends(e *RaceEntry) horizon {
	if f.unsynchronized || e.Unsynchronized {
		return horizon{mono: f.firstSeen(e) + f.termOf(e)}
	}
	return horizon{wall: e.TermExpiry}
}

// over is when the term of e has run out for every clock that keeps within
// bounds: MaxClockSkew later, or what two monotonic clocks are allowed to drift
// apart in a term.
func (f *follower) over(e *RaceEntry) horizon {
	h := f.ends(e)
	if h.mono > 0 {
		h.mono += f.drift(e)
	} else {
		h.wall = h.wall.Add(f.skew)
	}
	return h
}

// reservedUntil is when the reservation of the vacant record e is over: at its
// TermExpiry, but a term after it was first seen at the latest. Nobody may stop an
// election for longer, by a mistake or by a clock that is wrong.
func (f *follower) reservedUntil(e *RaceEntry) horizon {
	h := f.ends(e)
	if h.mono == 0 {
		h.sooner = f.firstSeen(e) + f.termOf(e) + f.drift(e)
	}
	return h
}

// termOf is the term that e was written for.
func (f *follower) termOf(e *RaceEntry) time.Duration {
	if e.TermLength > 0 {
		return min(e.TermLength, MaxTermLength)
	}
	return f.term
}

// drift is the allowance for two monotonic clocks that measure the term of e.
func (f *follower) drift(e *RaceEntry) time.Duration { return drift(f.termOf(e), f.skew) }

// drift is how much longer than a term a challenger waits that cannot compare
// wall clocks: MaxClockSkew, and at least a hundredth of the term. Crystals are
// within a ten-thousandth, and the kernel lets NTP turn a clock by a two-thousandth.
func drift(term, skew time.Duration) time.Duration { return max(skew, term/100) }

// sighting is when a term was first seen.
type sighting struct {
	of *RaceEntry
	at time.Duration
}

// maxSightings is how many older states of the record are told apart. Replicas that
// lag show few.
const maxSightings = 8

// sight notes when the term of e, which is here now, was first seen. An older state
// that a read returns may be a lagging replica's, or that of a store that was set back,
// whose leader may be alive by what was never seen here: so its term counts from when
// it was first seen after the newest. Seen again it is the same sighting, however
// often replicas take turns.
func (f *follower) sight(e *RaceEntry, newer bool) {
	now := f.now().mono // not before: the write may have begun after the read did
	switch {
	case f.newest.of == nil || newer && !oneTerm(e, f.newest.of):
		f.newest, f.older = sighting{e, now}, nil
	case oneTerm(e, f.newest.of):
		f.newest.of = e
	case !f.sighted(e):
		if len(f.older) == maxSightings {
			f.older = f.older[1:]
		}
		f.older = append(f.older, sighting{e, now})
	}
}

// firstSeen is when the term of e was first seen: now, if it never was.
func (f *follower) firstSeen(e *RaceEntry) time.Duration {
	if f.newest.of != nil && oneTerm(e, f.newest.of) {
		return f.newest.at
	}
	for _, s := range f.older {
		if oneTerm(e, s.of) {
			return s.at
		}
	}
	return f.now().mono
}

func (f *follower) sighted(e *RaceEntry) bool {
	for _, s := range f.older {
		if oneTerm(e, s.of) {
			return true
		}
	}
	return false
}

// oneTerm reports whether e and o are of the same write of a leader, or of the same
// vacancy. An operator's request is not a leader's sign of life: it moves nothing but
// Extension and Successor.
func oneTerm(e, o *RaceEntry) bool {
	return e.ElectionNumber == o.ElectionNumber && e.Incarnation == o.Incarnation &&
		e.LeaderID == o.LeaderID && e.TermExpiry.Equal(o.TermExpiry)
}
