package leaderelection

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"time"
)

// source is how a record was learned.
type source int

const (
	wasRead    source = iota // by ReadCurrent, or along with a lost race
	wasPushed                // by a ChangeFeed, or by a read that was answered too late: news, not a proof
	wasWritten               // by a write of this campaign that succeeded
)

// knowledge is what is known of an election's record, and since when. It belongs to the loop of a
// campaign or of an observer, and does not depend on either.
type knowledge struct {
	skew           time.Duration
	term           time.Duration // of a record that names none
	unsynchronized bool          // never compare wall clocks with another machine's

	latest   *RaceEntry // the newest record ever learned
	base     *RaceEntry // what the next write is conditional on: the last record read, or a newer one
	ofLatest evidence
	ofBase   evidence
	terms    sightings

	readAt   instant // when the last answered read began
	again    bool    // it returned what was the base already
	unsure   bool    // a write's outcome is open: read before any write
	disputed bool    // a record of the latest's order, but a different one, was pushed: a read must decide
}

// evidence says how a state of the record is known.
type evidence struct {
	how  source
	at   instant // it was the record at this instant
	read instant // when the last read that returned it began; zero: none has
}

// learn takes in a record, and reports whether it is newer than all before it. It was the record at
// the instant at, and has arrived at the instant now. Now matters since a record that was read may
// have been written after the read had begun.
//
// An older record is not news. But a record that was read becomes the base of the next write even if
// it is older than the latest, since the store may have been set back. A record that a feed has
// reported may be undone, and another written in its place. When that record is read it is news as
// well, unless it shows a set-back: then the leader may have a view by what was reported.
func (k *knowledge) learn(e *RaceEntry, at, now instant, how source) (newer bool) {
	other := k.ofLatest.how == wasPushed && e.Compare(k.latest) == 0 && !same(e, k.latest)
	newer = k.latest == nil || e.Compare(k.latest) > 0 || other && how != wasPushed && !shortens(e, k.latest)
	k.disputed = how != wasRead && !newer && (k.disputed || other)
	k.terms.last = now.mono
	if newer || how == wasRead {
		k.terms.sight(e, now.mono, newer)
	}
	if s := k.terms.find(e); s != nil && !k.measures(e) && tooFar(e, now.wall, k.skew) != nil {
		s.disproved = true
	}
	if how == wasRead {
		k.readAt, k.again, k.unsure = at, same(e, k.base), false
	}
	shown := evidence{how: how, at: at}
	switch {
	case how == wasRead:
		shown.read = at
	case !newer:
		shown.read = k.ofLatest.read
	}
	if newer {
		k.latest = e
	}
	if newer || how != wasPushed && same(e, k.latest) {
		k.ofLatest = shown
	}
	if newer || how == wasRead || how == wasWritten && e.Compare(k.latest) == 0 {
		k.base, k.ofBase = e, shown
	}
	return newer
}

// shortens reports whether e has an earlier end for the term of o's leadership. No leader writes that.
// An operator's request over an older state has it, after the store was set back.
func shortens(e, o *RaceEntry) bool {
	return !e.Vacant() && e.Incarnation == o.Incarnation && e.TermExpiry.Before(o.TermExpiry)
}

// same reports whether e and o are the same state of the record: all their fields are equal, but
// for the Token. Order and Incarnation are not enough. A feed may report a state that is undone,
// and then another state of the same order may be written.
func same(e, o *RaceEntry) bool {
	return o != nil && e.Compare(o) == 0 && e.Incarnation == o.Incarnation && e.WriteID == o.WriteID && e.LeaderID == o.LeaderID &&
		e.Successor == o.Successor && e.TermExpiry.Equal(o.TermExpiry) && e.TermLength == o.TermLength &&
		e.Hold == o.Hold && e.Priority == o.Priority && e.Unsynchronized == o.Unsynchronized && e.Emptied == o.Emptied &&
		slices.Equal(e.HostPort, o.HostPort) && bytes.Equal(e.ConnectionParams, o.ConnectionParams) && maps.Equal(e.Extra, o.Extra)
}

// ends returns when the term of e, or its reservation, has run out by the clock of its writer: its
// TermExpiry. If wall clocks must not be compared, that is a whole term after the term was first
// seen, by this machine's monotonic clock. (When it was seen, it had been written already.)
func (k *knowledge) ends(e *RaceEntry) deadline {
	if k.measures(e) {
		return deadline{mono: k.firstSeen(e) + k.termOf(e)}
	}
	return deadline{wall: e.TermExpiry}
}

// measures reports whether the term of e is measured here, since wall clocks must not be compared.
func (k *knowledge) measures(e *RaceEntry) bool { return k.unsynchronized || e.Unsynchronized }

// over returns when the term of e has run out for every clock within bounds. That is later than
// ends by MaxClockSkew, or by the drift that two monotonic clocks may have in a term. If its
// TermExpiry is disproved, that is two terms after it was first seen, if the wall clock does not
// show it sooner.
func (k *knowledge) over(e *RaceEntry) deadline {
	h := k.ends(e)
	if k.measures(e) {
		h.mono += k.drift(e)
		return h
	}
	h.wall = h.wall.Add(k.skew)
	if k.disproved(e) {
		h.sooner = k.firstSeen(e) + disprovedTerms*k.termOf(e)
	}
	return h
}

// disprovedTerms is after how many terms without a sign of life a term is over whose TermExpiry is
// disproved. Its leader's view has ended after one by the leader's own monotonic clock. The second
// allows for what a time service may do to both of the clocks in question.
const disprovedTerms = 2

// disproved reports whether it was proved that the TermExpiry of e is wrong, or this machine's clock
// is: e arrived before any clock within MaxClockSkew could have written it. Nobody knows which of the
// two, so a candidate that acquires such a record marks its own as Unsynchronized. With right clocks
// this never applies. A Hold is not waited for like a term: it ends by the wall clock alone.
func (k *knowledge) disproved(e *RaceEntry) bool {
	s := k.terms.find(e)
	return s != nil && s.disproved && !e.Vacant() && e.Hold == 0 && !k.measures(e)
}

// reservedUntil returns when the reservation of the vacant record e is over: at its TermExpiry, and
// at the latest a term and a drift after it was first seen. So no mistake and no wrong clock can
// stop an election for longer.
func (k *knowledge) reservedUntil(e *RaceEntry) deadline {
	h := k.ends(e)
	if !k.measures(e) {
		h.sooner = k.firstSeen(e) + k.termOf(e) + k.drift(e)
	}
	return h
}

// heldUntil returns when nobody leads by the record e any more, and its Hold is over, for every
// clock within bounds. The Hold of a vacancy is also over when as much time has passed since it was
// first seen.
func (k *knowledge) heldUntil(e *RaceEntry) deadline {
	hold := min(max(e.Hold, 0), MaxTermLength)
	drift := k.drift(e) // in a term
	// The drift in the hold, at most the hold itself. No candidate's term is so short that this
	// matters.
	apart := float64(hold) * float64(drift) / float64(max(k.termOf(e), drift))
	h, further := k.over(e), hold+time.Duration(apart)
	if k.measures(e) {
		h.mono += further
	} else {
		h.wall = h.wall.Add(hold)
	}
	if e.Vacant() {
		h.sooner = k.firstSeen(e) + further + drift
	}
	return h
}

// emptiedUntil returns when nobody leads any more by what the emptied record e said before: when a
// term of this candidate's length has run out since e was first seen.
func (k *knowledge) emptiedUntil(e *RaceEntry) deadline {
	return deadline{mono: k.firstSeen(e) + k.termOf(e) + k.drift(e)}
}

// termOf returns the term length of e, or this candidate's if e has none.
func (k *knowledge) termOf(e *RaceEntry) time.Duration {
	if e.TermLength > 0 {
		return min(e.TermLength, MaxTermLength)
	}
	return k.term
}

// drift returns the allowance for two monotonic clocks that measure the term of e.
func (k *knowledge) drift(e *RaceEntry) time.Duration { return drift(k.termOf(e), k.skew) }

// drift returns how much longer than a term a challenger waits if it cannot compare wall clocks:
// MaxClockSkew, and at least a hundredth of the term. Crystals are exact to a ten-thousandth, but a
// time service turns the monotonic clock along with the wall clock: ntpd by a two-thousandth at most,
// chrony by its maxslewrate, a twelfth by default. If the leader's clock is slowed by the rate r and the
// challenger's is sped up by it, the view lasts (T - S) / (1 - r), and the wait (T + S) / (1 + r). So r may
// be S / T at most, as the page of the ClockPolicy Unsynchronized says.
func drift(term, skew time.Duration) time.Duration { return max(skew, term/100) }

// sightings say when terms were first seen.
type sightings struct {
	newest sighting      // of the latest record's term
	older  []sighting    // of older terms that reads have returned since
	last   time.Duration // when any record was last learned
}

type sighting struct {
	of        *RaceEntry
	at        time.Duration
	version   time.Duration // when the newest version of it, with its stamp, was first seen
	disproved bool          // see knowledge.disproved: for this term, not for the next
}

// maxSightings is how many older states of the record are told apart. Lagging replicas show few.
const maxSightings = 8

// sight notes when the term of e, which has arrived now, was first seen. If a read returns an older
// state, it may come from a lagging replica, or the store was set back. Then its leader may be
// alive by an extension that was never seen here. So an older term counts from when it was first
// seen after the newest. If it is seen again, that is the same sighting, however often replicas
// take turns.
func (s *sightings) sight(e *RaceEntry, now time.Duration, newer bool) {
	switch {
	case s.newest.of == nil || newer && !oneTerm(e, s.newest.of):
		s.newest, s.older = sighting{of: e, at: now, version: now}, nil
	case oneTerm(e, s.newest.of):
		if newer {
			s.newest.version = now
		}
		s.newest.of = e
	case s.find(e) == nil:
		if len(s.older) == maxSightings {
			s.older = s.older[1:]
		}
		s.older = append(s.older, sighting{of: e, at: now, version: now})
	}
}

// find returns the sighting of the term of e, or nil.
func (s *sightings) find(e *RaceEntry) *sighting {
	if s.newest.of != nil && oneTerm(e, s.newest.of) {
		return &s.newest
	}
	for i := range s.older {
		if oneTerm(e, s.older[i].of) {
			return &s.older[i]
		}
	}
	return nil
}

// claims returns the states of the record by which somebody may lead: the one that was read last, and
// each newer one that is known. There are such if the store was set back, more than once perhaps, or
// the read is stale.
func (k *knowledge) claims() (all []*RaceEntry) {
	if k.base == nil {
		return nil
	}
	for _, s := range k.terms.older {
		if s.of.Compare(k.base) > 0 {
			all = append(all, s.of)
		}
	}
	return append(all, k.latest, k.base)
}

// firstSeen returns when the term of e was first seen. If it never was, that is when a record was
// last learned.
func (k *knowledge) firstSeen(e *RaceEntry) time.Duration {
	if s := k.terms.find(e); s != nil {
		return s.at
	}
	return k.terms.last
}

// versionSeen is firstSeen for the newest version of that term, which an operator's request may have
// made: not before that version was stamped.
func (k *knowledge) versionSeen(e *RaceEntry) time.Duration {
	if s := k.terms.find(e); s != nil {
		return s.version
	}
	return k.terms.last
}

// oneTerm reports whether e and o come from the same write of a leader, or are the same vacancy. An
// operator's request is not a leader's sign of life, and changes only Extension and Successor. If a
// record was emptied again, its Token shows that: another version.
func oneTerm(e, o *RaceEntry) bool {
	return e.ElectionNumber == o.ElectionNumber && e.Incarnation == o.Incarnation && e.WriteID == o.WriteID &&
		e.LeaderID == o.LeaderID && e.TermExpiry.Equal(o.TermExpiry) &&
		e.Emptied == o.Emptied && (!e.Emptied || sameVersion(e.Token, o.Token))
}

// sameVersion reports whether two tokens are of the same version of the record: they are equal, or
// have equal contents if their type cannot be compared.
func sameVersion(a, b LeaderToken) bool {
	if reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() {
		return a == b
	}
	return reflect.DeepEqual(a, b)
}

// attempt is a write of the lease whose outcome may still be open. A record that it led to shows that
// it happened.
type attempt struct {
	kind        OpKind
	incarnation string
	id          string // its WriteID
	number      ElectionNumber
	ext         uint64
	expiry      time.Time
	begun       instant
	end         *viewState // the view's end, once the write is confirmed
	taken       taken      // what an acquisition takes from others
	measured    bool       // its record is Unsynchronized
	late        bool       // it is not waited for: it can no longer begin a leadership
}

// led reports whether the record e came from a: it is what a wrote, perhaps with an operator's
// request added since. Its WriteID is not enough: clones of a machine may draw the same random
// numbers, until its kernel learns that it was cloned.
func (a *attempt) led(e *RaceEntry) bool {
	return !e.Vacant() && e.Incarnation == a.incarnation && e.ElectionNumber == a.number && e.Extension >= a.ext &&
		e.WriteID == a.id && e.TermExpiry.Equal(a.expiry)
}

// attempts are a campaign's open writes of the lease, in their order. A write is open while its
// outcome is unknown.
type attempts struct {
	open []attempt
	last attempt // the last write that is known to have happened
}

// wrote reports whether this campaign has written the record e. Its Incarnation alone does not show
// that: another process may have been restored from the same snapshot of a machine as this one, and
// goes on with what this one had made up. A record that is older than the last write known to have
// happened can only be of the time before the two were two.
func (l *attempts) wrote(e *RaceEntry) bool {
	a := &l.last
	return l.origin(e) != nil || !e.Vacant() && e.Incarnation == a.incarnation &&
		(e.ElectionNumber < a.number || e.ElectionNumber == a.number && e.Extension < a.ext)
}

// match returns the open write that e shows, or nil.
func (l *attempts) match(e *RaceEntry) *attempt {
	for i := range l.open {
		if a := &l.open[i]; a.led(e) {
			return a
		}
	}
	return nil
}

// origin returns this campaign's write that e came from, or nil. Unlike match, it also finds a
// write that is known to have happened: if the store stamps only what is read, the stamp comes
// after the answer.
func (l *attempts) origin(e *RaceEntry) *attempt {
	if l.last.led(e) {
		return &l.last
	}
	return l.match(e)
}

// settle forgets the open writes that e, which was read or written, has decided. A write that was
// asked for before e has happened, or never will.
func (l *attempts) settle(e *RaceEntry) {
	kept := l.open[:0]
	for _, a := range l.open {
		if a.number > e.ElectionNumber || a.number == e.ElectionNumber && a.ext > e.Extension {
			kept = append(kept, a)
		} else if a.led(e) && !l.last.led(e) {
			l.last = a
		}
	}
	l.open = kept
}

// won forgets all open writes. It keeps a, which has happened, since its stamp may still come.
func (l *attempts) won(a *attempt) { l.last, l.open = *a, nil }

// giveUp stops waiting for the open writes. If one still lands, it is known.
func (l *attempts) giveUp() {
	for i := range l.open {
		l.open[i].late = true
	}
}

// acquiring reports whether there is an open acquisition that could begin a leadership.
func (l *attempts) acquiring() bool {
	for i := range l.open {
		if a := &l.open[i]; a.kind == OpAcquire && !a.late {
			return true
		}
	}
	return false
}

// measured reports whether there is such an acquisition, of a record that is Unsynchronized.
func (l *attempts) measured() bool {
	return slices.ContainsFunc(l.open, func(a attempt) bool { return a.kind == OpAcquire && !a.late && a.measured })
}

// pending reports whether there is an open write by which the record may be this campaign's now.
// That is an acquisition that could begin a leadership, or an extension of a leadership that has
// ended, for a term.
func (l *attempts) pending(wake *alarm, term time.Duration) bool {
	for i := range l.open {
		if a := &l.open[i]; a.kind == OpExtend && !a.late && wake.now.mono < a.begun.mono+term {
			wake.at(a.begun.mono + term)
			return true
		}
	}
	return l.acquiring()
}

// maxLate is how many acquisitions are remembered that can no longer begin a leadership. If one of
// them still lands, the record is this campaign's own, and is released like any other.
const maxLate = 8

// forgetOld drops the oldest of the acquisitions that can no longer begin a leadership, once the
// view of the leader from which they would have taken the record is over.
func (l *attempts) forgetOld(wake *alarm, term time.Duration) {
	kept, late := l.open[:0], 0
	for i := range l.open {
		if a := &l.open[i]; a.kind == OpAcquire {
			if over := a.begun.mono + term; wake.now.mono < over {
				wake.at(over)
			} else {
				a.late = true
				late++
			}
		}
	}
	for _, a := range l.open {
		if late > maxLate && a.late && wake.now.mono >= a.taken.alive {
			late--
			continue
		}
		kept = append(kept, a)
	}
	l.open = kept
}

// greatest returns the greatest Extension of a leadership's open writes.
func (l *attempts) greatest(number ElectionNumber) (ext uint64) {
	for i := range l.open {
		if a := &l.open[i]; a.number == number {
			ext = max(ext, a.ext)
		}
	}
	return ext
}
