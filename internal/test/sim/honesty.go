package sim

import (
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
