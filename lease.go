package leaderelection

import (
	"math"
	"slices"
	"time"
)

// lease is one candidate's part in an election: what it knows of the record and of its own writes, and whether it
// leads. It is pure: it calls, waits and logs nothing, and has no clock of its own. A driver tells it what was
// read, written and pushed, and when, and asks which call is due. Nothing that a driver does with the answers can
// make two views true.
type lease struct {
	claims
	witness
	writes  []write    // of the last term
	unsure  bool       // a write's outcome is open: a read comes before any other write
	refused *RaceEntry // a write over it was refused: if it is old, it is written over again when two reads in a row have shown it
	proof   bool       // base was read or written, and not only pushed
	at      instant    // base was the record at this instant
	proved  *RaceEntry // the newest state that was read or written
	highest ElectionNumber
	held    time.Duration // the last leadership's Hold lasts until then; 0: none

	lead  *lead // nil: this candidate has no view
	ended error // why the last one ended
}

// lead is a leadership whose view lives.
type lead struct {
	number    ElectionNumber
	view      viewEnd
	asked     string // who is to follow, if somebody asked for a hand-over
	confirmed write
	expiry    time.Time     // the greatest that was asked for
	last      viewEnd       // that goes with expiry
	held      time.Duration // its Hold lasts until then; 0: none
}

// write is an acquisition, an extension or a release. A record shows that it happened.
type write struct {
	kind  OpKind
	of    *RaceEntry
	over  *RaceEntry // what it was conditional on
	old   bool       // another state is known that is newer than that; false again once it has begun a quiet
	begun instant
	view  viewEnd
	done  bool // it begins and moves no view any more
}

// led reports whether r is what w wrote, perhaps with an operator's request added since. Its WriteID is
// not enough: clones of a machine may draw the same random numbers, until its kernel learns that it was cloned.
func (w *write) led(r *RaceEntry) bool {
	return r.Vacant() == w.of.Vacant() && r.WriteID == w.of.WriteID && r.Incarnation == w.of.Incarnation && r.ElectionNumber == w.of.ElectionNumber &&
		r.Extension >= w.of.Extension && r.TermExpiry.Equal(w.of.TermExpiry)
}

// robs reports whether w takes the record from another, by a wall clock.
func (w *write) robs() bool { return w.kind == OpAcquire && !w.of.Unsynchronized && !w.over.Vacant() }

func newLease(p *policy) *lease {
	return &lease{claims: claims{policy: p, longest: p.term, dead: map[string]bool{}}}
}

// origin returns the write of this candidate that r came from, or nil.
func (l *lease) origin(r *RaceEntry) *write {
	for i := range slices.Backward(l.writes) { // of two releases at one instant, the later one
		if l.writes[i].led(r) {
			return &l.writes[i]
		}
	}
	return nil
}

// mine reports whether r is this candidate's own. The Incarnation does not show it: another process may have been
// restored from the same snapshot of a machine, and goes on with what this one had made up.
func (l *lease) mine(r *RaceEntry) bool { return r != nil && !r.Vacant() && l.origin(r) != nil }

// open takes in that a write has failed, was refused, or was not answered in time. Whether it has happened, or will
// happen, only a record shows. If it was refused as a lost race, over is what it was conditional on.
func (l *lease) open(over *RaceEntry) {
	if l.unsure = true; over != nil {
		l.refused = over
	}
}

// wasRefused reports whether the last write that was refused was conditional on this version.
func (l *lease) wasRefused(r *RaceEntry) bool {
	return l.refused != nil && r != nil && sameVersion(r.Token, l.refused.Token)
}

// look ends the view if its time has come. All that takes in something looks first.
func (l *lease) look(now instant) {
	for i := range l.writes {
		l.writes[i].view = l.writes[i].view.tighten(now)
	}
	if d := l.lead; d != nil {
		if d.view, d.last = d.view.tighten(now), d.last.tighten(now); !d.view.live(now) {
			l.leave(ErrExpired)
		}
	}
}

// leave ends the view. To leave by choice, call it when no work of the leadership runs any more.
func (l *lease) leave(cause error) {
	if l.lead != nil {
		l.held, l.lead, l.ended = l.lead.held, nil, cause
	}
}

// dropHold gives up the Hold: the job that it protects was not begun.
func (l *lease) dropHold() {
	if l.held = 0; l.lead != nil {
		l.lead.held = 0
	}
}

// refuse ends the view of a leadership under which nothing has begun: no job needs its Hold.
func (l *lease) refuse(cause error) {
	l.lead.held = l.held
	l.leave(cause)
}

// learn takes in a state of the record that a call from began on has shown, and reports whether it is newer than all before.
func (l *lease) learn(r *RaceEntry, how source, began, now instant) (news bool) {
	l.look(now)
	if how == wasWritten || how == wasRead && !l.unsure && l.wasRefused(r) && l.wasRefused(l.base.of) {
		l.refused = nil
	}
	w, proof := l.origin(r), how != wasPushed
	if w != nil && l.old(w.over) && !w.over.Emptied && !w.led(l.newest.of) {
		w.old = true // so the store was set back, or a feed has told of what never was
	}
	news = l.claims.learn(r, how, w != nil, now)
	l.highest = max(l.highest, r.ElectionNumber)
	switch {
	case proof:
		l.at, l.proof, l.unsure = began, true, false
		if l.proved == nil || r.Compare(l.proved) >= 0 {
			l.proved = r
		}
	case news:
		l.at, l.proof, l.unsure = now, false, l.unsure || w != nil
	}
	if proof && w != nil && w.kind != OpExtend && w.old {
		if w.done, w.old = true, false; !l.old(r) { // else it is known that this is lost, or what is read is stale
			l.hush(now)
		}
	}
	if l.checked && w != nil && l.observe(commitTS(r.Token), w.begun, now, l.skew) && !w.done && w.robs() {
		l.hush(w.begun) // it was taken too early, perhaps from a leader who does not know
	}
	l.doubt()
	switch d := l.lead; {
	case d == nil && w != nil && w.kind == OpAcquire && !w.done && proof && (!l.mistrust || w.of.Unsynchronized) && now.mono >= l.quiet:
		if w.done = true; w.view.live(now) {
			l.lead = &lead{number: w.of.ElectionNumber, view: w.view, confirmed: *w, expiry: w.of.TermExpiry, last: w.view}
			if l.hold > 0 {
				l.lead.held = w.begun.mono + l.hold
			}
			l.lead.ask(r, l.id)
		}
	case d == nil:
	case w != nil && w.of.ElectionNumber == d.number:
		if proof && !w.done && w.of.Compare(d.confirmed.of) > 0 {
			d.view, d.confirmed, w.done = w.view, *w, true
		}
		if news {
			d.ask(r, l.id)
		}
	case news, r.ElectionNumber == d.number && !r.Vacant() && (r.Incarnation != d.confirmed.of.Incarnation || r.Compare(d.confirmed.of) >= 0):
		l.leave(ErrOusted)
	}
	return news
}

// ask notes who is to follow, if r says so.
func (d *lead) ask(r *RaceEntry, id string) {
	if r.Successor != "" && r.Successor != id {
		d.asked = r.Successor
	}
}

// wish is what a driver, which knows health, callbacks, pauses and ends, would like.
type wish struct {
	lead   bool          // to lead, if nobody does; else to give the record back
	work   bool          // work of an earlier leadership still runs: neither lead nor give back
	keep   bool          // to extend the lease of the leadership
	extend time.Duration // how long after the last confirmed write began
}

// next returns the one call that is due, or "".
func (l *lease) next(now instant, w wish) OpKind {
	l.look(now)
	b := l.base.of
	switch d := l.lead; {
	case d != nil && !w.keep:
		return ""
	case d != nil && (l.unsure || !l.mine(b) && !l.forgotten(now)):
		return OpRead
	case d != nil && now.mono < d.confirmed.begun.mono+w.extend:
		return ""
	case d != nil:
		return OpExtend
	case w.work:
		return ""
	case l.leaving(w) && (l.holds(now) || l.mine(b) && !l.old(b)):
		switch {
		case l.unsure || !l.mine(b):
			return OpRead
		case now.mono < l.quiet:
			return ""
		}
		return OpRelease
	case !w.lead || l.mistrust && l.hold > 0: // a Hold cannot be measured by those who have just started
		return ""
	}
	if over, _ := l.over(now, l.mine); !over {
		return ""
	}
	if seen, _ := l.over(l.at, l.mine); l.unsure || !seen || !l.proof && !b.Vacant() || l.wasRefused(b) && b.Compare(l.newest.of) < 0 {
		return OpRead // it must be seen again after it was free
	}
	return OpAcquire
}

// leaving reports whether to give the record back. Who mistrusts its clock gives back what it has taken by that
// clock, and leaves a term to the others.
func (l *lease) leaving(w wish) bool {
	return !w.lead || l.mistrust && l.proved != nil && !l.proved.Unsynchronized
}

// forgotten reports whether the store has lost this leader's record, and nobody leads by what it has shown
// since. Then the leader puts its record back.
func (l *lease) forgotten(now instant) bool {
	alive := func(c claim) bool { return !c.of.Vacant() && !l.mine(c.of) && !l.claims.end(c).reached(now) }
	return l.mine(l.newest.of) && !slices.ContainsFunc(l.older, alive) && !alive(l.base)
}

// holds reports whether the record may be this candidate's by a write of the last term: by the newest state that
// is proved, or by a write that may have come, or may yet come, after that.
func (l *lease) holds(now instant) bool {
	for i := range l.writes {
		w := &l.writes[i]
		may := l.proved == nil || w.led(l.proved) || w.of.Compare(l.proved) > 0 && l.proved.Compare(w.over) <= 0
		if may && w.kind != OpRelease && now.mono < w.begun.mono+l.term {
			return true
		}
	}
	return false
}

// issue returns the record of a write that begins now, and notes it. The two ids are random.
func (l *lease) issue(now instant, kind OpKind, id, incarnation string) *RaceEntry {
	if kind == OpRelease {
		for i := range l.writes {
			l.writes[i].done = true // what is given back begins nothing any more
		}
		return l.note(write{kind: kind, of: l.vacancy(now), over: l.base.of, begun: now})
	}
	r := &RaceEntry{
		LeaderID:         l.id,
		HostPort:         l.hostPort,
		ConnectionParams: l.params,
		Priority:         l.priority,
		TermExpiry:       now.wall.Add(l.term).UTC(),
		TermLength:       l.term,
		WriteID:          id,
		Incarnation:      incarnation,
		Extra:            l.base.of.Extra,
		Token:            l.base.of.Token,
	}
	if kind == OpAcquire {
		l.acquisition(r, now)
	} else {
		l.extension(r, now)
	}
	span := l.term - l.skew
	w := write{kind: kind, of: r, over: l.base.of, begun: now, view: viewEnd{wall: r.TermExpiry.Add(-l.skew), mono: now.mono + span}}
	if r.Unsynchronized {
		w.view.wall, w.view.apart = now.wall.Add(span), drift(l.term, l.skew) // its own clocks alone, as they are now
	}
	if d := l.lead; d != nil {
		if r.TermExpiry.Equal(d.expiry) {
			w.view = d.last // the clock was set back: neither the term nor the view has grown
		}
		d.expiry, d.last = r.TermExpiry, w.view
	}
	return l.note(w)
}

// note adds a write, forgets those that are over, and returns the record.
func (l *lease) note(w write) *RaceEntry {
	l.writes = slices.DeleteFunc(l.writes, func(o write) bool {
		return w.begun.mono > o.begun.mono+l.term+drift(l.term, l.skew) && !(l.proved != nil && o.led(l.proved))
	})
	l.writes = append(l.writes[max(0, len(l.writes)-maxWrites+1):], w)
	return w.of
}

const maxWrites = 32 // an ExtendEvery of a twentieth of a term makes thirty in one and a half

// acquisition completes the record that begins a leadership. Its Incarnation is made up now: two processes may have
// been restored from one snapshot of a machine, so what was made up before need not be this process's alone. A
// record of this candidate's own keeps its Incarnation, which shows everybody why nobody waited for its term.
func (l *lease) acquisition(r *RaceEntry, now instant) {
	b := l.base.of
	_, r.Unsynchronized = l.over(now, l.mine)
	r.ElectionNumber = l.highest + 1
	if b.ElectionNumber == NoElections {
		// A record that was deleted, emptied or created again does not repeat a number that a fence has seen, if it
		// has had no more than one leadership a second.
		r.ElectionNumber = max(r.ElectionNumber, ElectionNumber(min(max(now.wall.Unix(), 0), lastBorn)))
	}
	if l.mine(b) {
		r.Incarnation = b.Incarnation
	}
	r.Hold = l.rest(now, now.mono+l.hold, l.term)
}

// lastBorn is the greatest number that a clock may give to a record: a second of the last year in which a view can be.
const lastBorn = math.MaxInt64 / int64(time.Second)

// extension completes the record that extends the leadership.
func (l *lease) extension(r *RaceEntry, now instant) {
	d := l.lead
	w := d.confirmed.of
	r.ElectionNumber, r.Incarnation, r.Unsynchronized = d.number, w.Incarnation, w.Unsynchronized
	r.Extension = l.nextExtension(d.number)
	if r.TermExpiry.Before(d.expiry) {
		r.TermExpiry = d.expiry
	}
	if r.Unsynchronized && r.TermExpiry.Equal(d.expiry) {
		r.TermExpiry = d.expiry.Add(1) // it says which write this is, not more
	}
	r.Hold = l.rest(now, d.held, l.term)
	if b := l.base.of; b.ElectionNumber == r.ElectionNumber && b.Incarnation == r.Incarnation && b.Successor != l.id {
		r.Successor = b.Successor // a request stays on record until it is granted
	}
}

// vacancy returns the record that releases the base. It is dated by this candidate's clock: a Hold ends by it.
func (l *lease) vacancy(now instant) *RaceEntry {
	b := l.base.of
	r := &RaceEntry{TermExpiry: now.wall.UTC(), TermLength: b.TermLength, ElectionNumber: b.ElectionNumber, Extension: l.nextExtension(b.ElectionNumber),
		Incarnation: b.Incarnation, Extra: b.Extra, Token: b.Token}
	r.Hold = l.rest(now, l.held, 0)
	r.Unsynchronized = l.measured || r.Hold == 0 && (b.Unsynchronized || l.mistrust)
	if s := b.Successor; r.Hold == 0 && s != "" && s != AnySuccessor && s != l.id {
		r.Successor = s
		r.TermExpiry = r.TermExpiry.Add(l.term)
	}
	return r
}

// rest returns what is left after term of a hold that lasts until held: not zero while it lasts, and for MaxClockSkew
// after it, since the others wait for that. So a candidate that proves the leader dead sees a hold even if it is
// shorter than the term.
func (l *lease) rest(now instant, held, term time.Duration) time.Duration {
	if l.hold == 0 || held == 0 || now.mono >= held+l.skew || l.holdsLate && term > 0 {
		return 0
	}
	return max(held-now.mono-term, 1)
}

// nextExtension returns a number greater than every Extension that is known of a leadership or was
// written for it, so that no two records are alike.
func (l *lease) nextExtension(number ElectionNumber) (next uint64) {
	count := func(r *RaceEntry) {
		if r.ElectionNumber == number {
			next = max(next, r.Extension)
		}
	}
	count(l.newest.of)
	count(l.base.of)
	for i := range l.writes {
		count(l.writes[i].of)
	}
	return next + 1
}

// wake sets the alarm for the next moment at which something else may be due.
func (l *lease) wake(a *alarm, w wish) {
	if d := l.lead; d != nil {
		a.at(d.view.mono)
		a.atWall(d.view.wall)
		if w.keep {
			a.later(d.confirmed.begun.mono + w.extend)
		}
		return
	}
	for i := range l.writes {
		a.later(l.writes[i].begun.mono + l.term)
	}
	a.later(l.quiet)
	if l.base.of != nil {
		a.until(l.claims.end(l.newest))
		a.until(l.claims.end(l.base))
	}
}
