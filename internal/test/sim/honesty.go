package sim

import (
	"slices"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// What a store's stamps can show, and what not. A leader's write was asked for at
// b, happened at s, and the leader knows of it since a. Where its clock was off by
// less than S - (a - s) on the one side, or S + (s - b) on the other, no comparison
// can show that it is beyond S. So with a clock that stands where it stood:
//
//   - A challenger whose clock is not proved to be ahead, by its own acquisition,
//     wins no earlier than at TermExpiry in true time: it campaigns at TermExpiry + S
//     by a clock that is ahead by S and the time its request was under way at most,
//     and that time passes as well.
//   - A leader whose clock is not proved to be behind has a view that ends, in true
//     time, no later than a - s after TermExpiry.
//
// Hence two views overlap by no more than a - s, the time in which the answer to
// the elder's last confirmed write was out, and the units of the two stamps.

// uncertainty is for how long after w was won the view of g may be in the future: that,
// and by how much its clock was set back since the write was asked for, if it was set
// between b and a and again since, and so has shown nothing; and what a suspend has hidden in which
// it was set back.
func (r *recorder) uncertainty(g *leadership, w won) time.Duration {
	k := g.attempt()
	m := r.measured(g, k)
	clock, now := g.p.actor.clock, r.now()
	if g.p.measures(g.number) || w.op != nil && w.op.write.Unsynchronized { // whatever the wall clocks show
		return clock.Hidden(m.asked, now)
	}
	sum := m.known - m.happened + unit(g.p.stamps[k]) + unit(w.stamp) + r.drifted()
	if clock.Stepped(m.asked-1, m.known) && clock.Stepped(m.known, now) {
		sum += clock.SetBack(m.asked-1, now)
	}
	return sum + clock.Hidden(m.asked, now)
}

// measurement is when a write was asked for, happened, and was known to have, in
// true time.
type measurement struct{ asked, happened, known time.Duration }

func (r *recorder) measured(g *leadership, k attempt) measurement {
	return measurement{
		asked:    g.p.actor.clock.Drowsy(g.p.began[k].at),
		happened: g.p.landed[k],
		known:    g.p.actor.clock.Awake(g.p.confirmed[k]),
	}
}

// drifted is how far a clock drifts in a term.
func (r *recorder) drifted() time.Duration {
	return time.Duration(r.drift*float64(r.term)) + time.Microsecond
}

// unit is what a stamp's last digits leave open: it may have been cut off or rounded
// to the power of ten that they show.
func unit(stamp time.Time) time.Duration {
	u := time.Second
	for u > 1 && stamp.Nanosecond()%int(u) != 0 {
		u /= 10
	}
	return u
}

// honest: a clock that a write has shown to be wrong is no leader's, unless its leadership goes by monotonic
// clocks alone, and its record says so.
func (r *recorder) honest(g *leadership) {
	if !r.lies || r.believed || g.p.measures(g.number) {
		return
	}
	k := g.attempt()
	m := r.measured(g, k)
	clock, now := g.p.actor.clock, r.now()
	if clock.Stepped(m.asked-1, now) {
		return
	}
	wall, _ := clock.Both()
	off := wall.Sub(r.epoch.Round(0)) - now
	u := unit(g.p.stamps[k]) + r.drifted()
	if off > g.p.skew+m.happened-m.asked+u || -off > g.p.skew+m.known-m.happened+u {
		r.failf(g.p.name, "leads with a clock that is off by %v, though its last extension, asked for at %v, written at %v, known at %v, has shown that",
			off, m.asked, m.happened, m.known)
	}
}

// accused is told that a candidate takes its clock for proved wrong.
func (r *recorder) accused(p *process, x *le.ClockSkewError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logf(p.name, "its clock is said to be wrong: %v", x)
	r.counts["clocks proved wrong"]++
	if !p.host.skewed && !p.actor.dead.Load() && !(x.Bound && p.host.wasBad) {
		r.failf(p.name, "a clock that never left its bound is said to be wrong: %v", x)
	}
}

// robbed is the leadership that the record e belongs to, where its view is alive.
func (r *recorder) robbed(e *le.RaceEntry) *leadership {
	for _, g := range r.leaderships {
		if !e.Vacant() && g.p.incarnations[e.Incarnation] && g.number == e.ElectionNumber && g.acts() && g.inFuture() {
			return g
		}
	}
	return nil
}

// foretold: feeds may tell the leader that a skewed candidate has taken its lease, before that has.
func (r *recorder) foretold(a *actor, e *le.RaceEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watched; w != nil && r.lies && !e.Vacant() && a.proc != nil && a.proc != w && !w.incarnations[e.Incarnation] {
		r.watched = nil
	}
}

// robs: nobody takes the record while a view is alive by it, but those who do not
// know yet that their clock is wrong: once, and then they do. By how much they know
// but for the time that their request was under way; where that was no longer than
// MaxClockSkew, which they add, it is enough.
func (r *recorder) robs(o *op, p *process, g *leadership) {
	switch {
	case r.wild:
		return
	case r.blind(g) > 0:
		r.counts["leaders that were suspended and set back in one term, and robbed"]++
		return
	case !r.lies:
		r.failf(p.name, "wins while the view of leadership %d (%s) is alive", g.number, g.p.name)
		return
	case g.p.host.skewed:
		return // its own clock may be the wrong one: overlap has its bound
	}
	if clock := p.actor.clock; r.now()-o.at <= p.skew && !clock.Stepped(clock.Drowsy(o.at)-1, r.now()) {
		p.robberies++
	}
	r.counts["leases taken from honest leaders"]++
	r.logf(p.name, "takes the lease from %s", g.p.name)
	if r.watched == g.p {
		r.watched = nil
	}
	switch off := o.wall.Sub(r.epoch.Round(0)) - o.at; {
	case off <= p.skew:
		r.failf(p.name, "takes the lease from %s, with a clock that is off by %v", g.p.name, off)
	case o.write.Unsynchronized:
		r.failf(p.name, "takes the lease from %s, and says that it compares no clocks", g.p.name)
	}
	if p.robberies > 1 {
		r.failf(p.name, "takes the lease from an honest leader for the %d. time since its clock was set", p.robberies)
	}
}

// overdue is how much longer than a term the present record binds all who keep
// within their bounds, because it is a skewed candidate's who may not take it back: who is gone or
// about to go, or takes it for run out since its clock was set again.
func (w *world) overdue() time.Duration {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	n := len(w.rec.records) - 1
	e, at := &w.rec.records[n], w.rec.times[n]
	if e.ElectionNumber == le.NoElections {
		return 0
	}
	beyond := func(e *le.RaceEntry) time.Duration {
		return max(e.TermExpiry.Sub(w.epoch.Round(0))-w.now()-w.longest()-w.Skew, 0)
	}
	var lost time.Duration // by what a set-back has erased, for those who were told of it
	for _, h := range w.hosts {
		for _, p := range h.all {
			if n := p.actor.newest; n != nil && n.Compare(e) > 0 && !p.actor.dead.Load() && !p.over {
				lost = max(lost, beyond(n))
			}
		}
	}
	extra := max(beyond(e), lost)
	if e.Vacant() {
		return extra // a reservation
	}
	for _, h := range w.hosts {
		for _, p := range h.all {
			if p.incarnations[e.Incarnation] && !p.actor.dead.Load() && !p.over && !p.leaving && !h.clock.Stepped(at, w.now()) {
				return lost
			}
		}
	}
	return extra
}

// state names one state of the record.
type state struct {
	number      le.ElectionNumber
	extension   uint64
	incarnation string
}

func stateOf(e *le.RaceEntry) state { return state{e.ElectionNumber, e.Extension, e.Incarnation} }

// term names what a leader's write began: a term, or a vacancy. An operator's request
// leaves it as it is.
type term struct {
	number           le.ElectionNumber
	who, incarnation string
	expiry           int64
}

func termOf(e *le.RaceEntry) term {
	return term{e.ElectionNumber, e.LeaderID, e.Incarnation, e.TermExpiry.UnixNano()}
}

// sighting is when somebody was told of a state of the record.
type sighting struct {
	first  reading       // by its clock, when it was told for the first time
	at     time.Duration // and in true time
	asked  reading       // the latest that a read began that returned it, by each clock
	expiry time.Time
	over   *state // what it had been told of that was newer; nil: nothing
}

// source is how somebody was told of a record. Only the first two are proofs.
type source int

const (
	wasRead    source = iota // by the answer to a read
	wasWritten               // by the answer to its own write
	wasPushed                // by a feed, or by an answer that came too late
)

// tell notes that an actor was told of a record: by the answer to the read o, or
// where that is nil to a write, or by a feed. With the lock.
func (r *recorder) tell(a *actor, e *le.RaceEntry, o *op, how source) {
	r.hears(a, e, how)
	if a.told == nil {
		a.told, a.terms = map[state]sighting{}, map[term]reading{}
	}
	if _, again := a.terms[termOf(e)]; !again {
		wall, mono := a.clock.Both()
		a.terms[termOf(e)] = reading{wall, mono}
	}
	a.greatest = max(a.greatest, e.ElectionNumber)
	s, again := a.told[stateOf(e)]
	if !again {
		s.first.wall, s.first.mono = a.clock.Both()
		s.at, s.expiry = r.now(), e.TermExpiry
		if n := a.newest; n == nil || e.Compare(n) > 0 {
			a.newest = e.Clone()
		} else {
			over := stateOf(n)
			s.over = &over
		}
	}
	if o != nil {
		s.asked.mono = max(s.asked.mono, o.mono)
		if o.wall.After(s.asked.wall) {
			s.asked.wall = o.wall
		}
	}
	a.told[stateOf(e)] = s
}

// hears keeps what makes it quiet for an actor: it has read a record that is older than what it knew, and the next
// newer one is another's, and of another leadership; or its own acquisition was accepted over such a record; or the record
// was emptied; or a read shows another record in the place of one that a feed had told of. From then on it takes
// nothing, nor releases anything, for a term and the allowance. With the lock.
func (r *recorder) hears(a *actor, e *le.RaceEntry, how source) {
	n, order := a.heard, +1
	if n != nil {
		order = e.Compare(n)
	}
	other, own := order == 0 && !alike(e, n), a.proc != nil && a.proc.incarnations[e.Incarnation]
	switch {
	case order > 0, other && how != wasPushed && !a.proved:
		doubted := a.doubts && !own && (e.ElectionNumber != n.ElectionNumber || e.Incarnation != n.Incarnation)
		if doubted && !a.certain {
			r.hush(a, wasPushed) // it may have given those reads up
		}
		if e.Emptied || doubted && a.certain || other && how == wasRead && termOf(e) != termOf(n) {
			r.hush(a, how)
		}
		a.heard, a.proved, a.doubts, a.certain, a.older = e.Clone(), how != wasPushed, false, false, nil
	case order == 0 && !other:
		if how != wasPushed {
			a.proved, a.doubts, a.certain = true, a.doubts && a.late, false
		}
	case how != wasPushed:
		again := slices.Contains(a.older, termOf(e))
		a.doubts, a.certain = true, a.certain || !a.late
		if a.older = append(a.older, termOf(e)); e.Emptied && !again {
			r.hush(a, how)
		}
	}
}

// hush begins an actor's quiet: for the longest term at most, and its own at least. What was pushed may come when it
// writes. With the lock.
func (r *recorder) hush(a *actor, how source) {
	_, now := a.clock.Both()
	a.quiet = max(a.quiet, now+r.measuredWait)
	if p := a.proc; p != nil && how != wasPushed && !a.late {
		a.surely = max(a.surely, now+p.term+p.allowance(p.term))
	}
}

// loud holds a candidate to the quiet. With the lock.
func (r *recorder) loud(o *op) {
	if a, e := o.actor, o.write; o.mono < a.surely && (e.Vacant() || e.Extension == 0) {
		r.failf(a.name, "writes %v, though it is quiet for %v more: the store was set back, or seems to have been", r.short(e), a.surely-o.mono)
	}
}

// quietUntil is the true time until which it is quiet for some process that lives, at the latest.
func (w *world) quietUntil() (until time.Duration) {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	for _, h := range w.hosts {
		for _, p := range h.all {
			if _, mono := h.clock.Both(); !p.over && !p.actor.dead.Load() {
				left := float64(p.actor.quiet-mono) / (1 - w.uneven() - w.Drift)
				until = max(until, w.now()+time.Duration(left))
			}
		}
	}
	return until
}

// confirm notes what else the answer to a write, or to a read, tells a candidate: that
// its own write, which e bears, has happened. A feed shows nothing. With the lock.
func (r *recorder) confirm(a *actor, e *le.RaceEntry, o *op, how source) {
	r.tell(a, e, o, how)
	if p := a.proc; p != nil && !e.Vacant() && p.incarnations[e.Incarnation] {
		k := attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}
		if _, known := p.confirmed[k]; !known {
			p.confirmed[k] = r.now()
			if _, old := p.overOld[e.ElectionNumber]; old && e.Extension == 0 && how != wasPushed {
				r.hush(a, wasPushed) // unless it had only heard of its own
			}
			p.marked[e.ElectionNumber] = e.Unsynchronized // of two acquisitions of a number, it is this one
		}
	}
}

// pushed is told what a feed delivers.
func (r *recorder) pushed(a *actor, entries ...*le.RaceEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		if e != nil && !a.dead.Load() {
			r.logf(a.name, "is pushed %v", r.short(e))
			if w := r.watched; w != nil && w == a.proc && w.current != nil && e.ElectionNumber == w.current.number && !e.Vacant() && !w.incarnations[e.Incarnation] {
				r.counts["leaders told of an undone record of their number"]++
				r.watched = nil
			}
			r.tell(a, e, nil, wasPushed)
		}
	}
}

// add makes e the present record. With the lock.
func (r *recorder) add(e *le.RaceEntry) {
	r.records = append(r.records, *e)
	r.times = append(r.times, r.now())
}

// setBackTo notes that the store was set back to the record e. With the lock.
func (r *recorder) setBackTo(e *le.RaceEntry, token le.LeaderToken) {
	back := *e.Clone()
	back.Token = token
	r.backs = append(r.backs, len(r.records))
	r.add(&back)
	r.spec.SetBack(&back)
	r.logf("store", "is set back to %v", r.short(&back))
}
