package leaderelection

import "time"

// source is how a record was learned.
type source int

const (
	wasRead    source = iota // by ReadCurrent, or along with a lost race
	wasPushed                // by a ChangeFeed, or by a read that was answered too late: news, and no proof
	wasWritten               // by a write of one's own that succeeded
)

// knowledge is what is known of an election's record, and since when. It belongs to
// the loop of a campaign or of an observer, and knows nothing of either.
type knowledge struct {
	skew           time.Duration
	term           time.Duration // of a record that names none
	unsynchronized bool          // never compare wall clocks with another machine's

	latest   *RaceEntry // the newest record ever learned
	rumour   bool       // it was told of, and no read or write has shown it
	disputed bool       // another was told of by the same order: a read tells which it is
	base     *RaceEntry // what the next write is conditional on: the last one read, or newer
	baseAt   instant    // when that was known to be the record
	readAt   instant    // when the last read that was answered began
	sameAt   instant    // the same, of the last one that returned the latest
	newest   sighting   // of the term that is the latest
	older    []sighting // of terms that reads have returned since, older than that
	unsure   bool       // a write's outcome is open: read before any write
	again    bool       // the last read returned what was the base already

	learnedAt time.Duration
}

// learn takes in a record, which was the record at the instant at, and reports whether it
// is newer than all before it. Older ones are no news. But what was read is what the
// next write is conditional on, even if it is older than the latest: it may be that the
// store was set back. What a feed has told of may be undone, and another written in its place:
// that is news as well, when it is read. Now is when it is here, and not before: a record
// that was read may have been written after the read had begun.
func (k *knowledge) learn(e *RaceEntry, at, now instant, how source) (newer bool) {
	other := k.rumour && e.Compare(k.latest) == 0 && e.Incarnation != k.latest.Incarnation
	newer = k.latest == nil || e.Compare(k.latest) > 0 || other && how != wasPushed
	k.disputed = how != wasRead && !newer && (k.disputed || other)
	k.learnedAt = now.mono
	if newer || how == wasRead {
		k.sight(e, now.mono, newer)
	}
	if how == wasRead {
		k.again = same(e, k.base)
	}
	if newer || how == wasRead || how == wasWritten && e.Compare(k.latest) == 0 {
		k.base, k.baseAt = e, at
	}
	if newer {
		k.latest, k.sameAt = e, instant{}
	}
	if same(e, k.latest) {
		k.rumour = how == wasPushed && (newer || k.rumour)
	}
	if how == wasRead {
		k.unsure, k.readAt = false, at
		if same(e, k.latest) {
			k.sameAt = at
		}
	}
	return newer
}

// same reports whether e and o are one state of the record.
func same(e, o *RaceEntry) bool {
	return o != nil && e.Compare(o) == 0 && e.Incarnation == o.Incarnation
}

// ends is when the term of e, held or reserved, has run out for the clock of the
// one who wrote it: its TermExpiry. If wall clocks must not be compared, it is
// a whole term after that term was first seen, when it was written already, by
// one's own monotonic clock.
func (k *knowledge) ends(e *RaceEntry) deadline {
	if k.unsynchronized || e.Unsynchronized {
		return deadline{mono: k.firstSeen(e) + k.termOf(e)}
	}
	return deadline{wall: e.TermExpiry}
}

// over is when the term of e has run out for every clock that keeps within
// bounds: MaxClockSkew later, or what two monotonic clocks are allowed to drift
// apart in a term.
func (k *knowledge) over(e *RaceEntry) deadline {
	h := k.ends(e)
	if h.mono > 0 {
		h.mono += k.drift(e)
	} else {
		h.wall = h.wall.Add(k.skew)
	}
	return h
}

// reservedUntil is when the reservation of the vacant record e is over: at its
// TermExpiry, but a term after it was first seen at the latest. Nobody may stop an
// election for longer, by a mistake or by a clock that is wrong.
func (k *knowledge) reservedUntil(e *RaceEntry) deadline {
	h := k.ends(e)
	if h.mono == 0 {
		h.sooner = k.firstSeen(e) + k.termOf(e) + k.drift(e)
	}
	return h
}

// heldUntil is when nobody leads any more by the record e, and what its Hold keeps it for
// is over, for every clock that keeps within bounds. That of a vacancy is known to be
// over, too, when so much time has passed since it was first seen.
func (k *knowledge) heldUntil(e *RaceEntry) deadline {
	hold := min(max(e.Hold, 0), MaxTermLength)
	drift := k.drift(e)                                            // in a term
	apart := float64(hold) * float64(drift) / float64(k.termOf(e)) // in the hold; of an odd record, beyond all counting
	h, further := k.over(e), hold+time.Duration(min(apart, float64(MaxTermLength)))
	if h.mono == 0 {
		h.wall = h.wall.Add(hold)
	} else {
		h.mono += further
	}
	if e.Vacant() {
		h.sooner = k.firstSeen(e) + further + drift
	}
	return h
}

// termOf is the term that e was written for.
func (k *knowledge) termOf(e *RaceEntry) time.Duration {
	if e.TermLength > 0 {
		return min(e.TermLength, MaxTermLength)
	}
	return k.term
}

// drift is the allowance for two monotonic clocks that measure the term of e.
func (k *knowledge) drift(e *RaceEntry) time.Duration { return drift(k.termOf(e), k.skew) }

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
func (k *knowledge) sight(e *RaceEntry, now time.Duration, newer bool) {
	switch {
	case k.newest.of == nil || newer && !oneTerm(e, k.newest.of):
		k.newest, k.older = sighting{e, now}, nil
	case oneTerm(e, k.newest.of):
		k.newest.of = e
	case !k.sighted(e):
		if len(k.older) == maxSightings {
			k.older = k.older[1:]
		}
		k.older = append(k.older, sighting{e, now})
	}
}

// firstSeen is when the term of e was first seen: not before the last look, if it
// never was.
func (k *knowledge) firstSeen(e *RaceEntry) time.Duration {
	if k.newest.of != nil && oneTerm(e, k.newest.of) {
		return k.newest.at
	}
	for _, s := range k.older {
		if oneTerm(e, s.of) {
			return s.at
		}
	}
	return k.learnedAt
}

func (k *knowledge) sighted(e *RaceEntry) bool {
	for _, s := range k.older {
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
