package sim

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// hold is a leadership that may keep the record from others.
type hold struct {
	p      *process
	number le.ElectionNumber
	index  int // the record of its acquisition
}

// holding holds a candidate's write to its Hold, by its own monotonic clock: the record is
// kept for so long from when the acquisition began, and no longer. That nobody takes it meanwhile
// is the specification's.
func (r *recorder) holding(p *process, o *op) {
	e := o.write
	if e.ElectionNumber > 0 && !e.Vacant() && e.Extension == 0 {
		want := p.hold - p.term
		if p.hold > 0 {
			want = max(want, 1) // while it is on, the record says so
		}
		if want = max(want, 0); e.Hold != want {
			r.failf(p.name, "claims %v with a hold of %v beyond its term, want %v", r.short(e), e.Hold, want)
		}
		return
	}
	h := r.holdOf(p, e.ElectionNumber)
	if h == nil { // it has claimed what it does not know yet to have won
		if e.Hold > 0 {
			r.failf(p.name, "writes %v with a hold of %v, but has never won it", r.short(e), e.Hold)
		}
		return
	}
	if e.Vacant() { // of what began nothing, or of an older one that a replica still has: it ends no hold
		h = r.lastHold(p)
		if h == nil {
			if e.Hold > 0 {
				r.failf(p.name, "writes %v with a hold of %v, but has never led", r.short(e), e.Hold)
			}
			return
		}
	}
	began := p.began[attempt{h.number, r.records[h.index].TermExpiry.UnixNano()}].mono
	rest := e.Hold
	if !e.Vacant() {
		rest += p.term
	}
	least, most := time.Duration(1<<62), time.Duration(0)
	for _, shown := range append(p.actor.clock.Shown(), reading{o.wall, o.mono}) {
		left := began + p.hold - shown.mono
		least, most = min(least, left), max(most, left)
	}
	over := time.Duration(0) // what may be left when none is written
	if p.hold > 0 {
		over = -p.skew // the others wait for that after the hold
	}
	switch {
	case e.Hold == 1 && most > over && (!e.Vacant() || least <= 0): // it is over within the term, or but for the skew
	case e.Hold == 0 && least > over:
		r.failf(p.name, "writes %v without the hold, of which %v are left", r.short(e), least)
	case e.Hold > 0 && rest > most:
		r.failf(p.name, "writes %v with a hold that ends %v too late", r.short(e), rest-most)
	case rest < least:
		r.failf(p.name, "writes %v with a hold that ends %v too early", r.short(e), least-rest)
	}
}

// holdOf is the hold of p's leadership, or nil if it has not won that.
func (r *recorder) holdOf(p *process, number le.ElectionNumber) *hold {
	for i := len(r.holds) - 1; i >= 0; i-- { // a store that was set back gives a number out again
		if h := &r.holds[i]; h.p == p && h.number == number {
			return h
		}
	}
	return nil
}

// lastHold is that of p's last leadership, or nil if it has never led.
func (r *recorder) lastHold(p *process) *hold {
	for i := len(r.holds) - 1; i >= 0; i-- {
		if h := &r.holds[i]; h.p == p && p.leaderships[h.number] != nil {
			return h
		}
	}
	return nil
}

// heldFor is how long it is from o until old, which has a Hold, is to be had: when that is over
// by its end, or if it is a vacancy, when it has been seen for so long.
func (r *recorder) heldFor(o *op, old, e *le.RaceEntry) time.Duration {
	p := o.actor.proc
	drift := p.allowance(old.TermLength)
	further := old.Hold + time.Duration(float64(old.Hold)*float64(drift)/float64(old.TermLength))
	bySight := r.since(o, old) + drift + further
	if !old.Vacant() {
		bySight += old.TermLength
	}
	byEnd := old.TermExpiry.Add(old.Hold + p.skew).Sub(o.wall)
	switch {
	case r.noCommonClock(o.actor, old):
		return bySight
	case old.Vacant() || e.Unsynchronized:
		return min(bySight, byEnd)
	}
	return byEnd
}

// noCommonClock reports whether a and the one who wrote e have no clock in common: one of
// them at least has Unsynchronized set, whatever e says.
func (r *recorder) noCommonClock(a *actor, e *le.RaceEntry) bool {
	return a.proc != nil && a.proc.unsynchronized || e.Unsynchronized || r.wroteUnsynchronized[e.Incarnation]
}

// measures reports whether p's leadership rests on monotonic clocks alone.
func (p *process) measures(number le.ElectionNumber) bool {
	return p.unsynchronized || p.marked[number]
}

// wait is how long it is until old may be taken by one who cannot compare clocks: held,
// when it has seen no sign of life for a term and the allowance, by its own monotonic
// clock, counted from when it was told; reserved for another, for a term.
func (r *recorder) wait(o *op, old *le.RaceEntry) time.Duration {
	wait := old.TermLength
	if !old.Vacant() {
		wait += o.actor.proc.allowance(old.TermLength)
	}
	return r.since(o, old) + wait
}

// reserved is how long it is until a reservation has lasted for a term, whatever its
// end is said to be.
func (r *recorder) reserved(o *op, old *le.RaceEntry) time.Duration {
	return r.since(o, old) + old.TermLength + o.actor.proc.allowance(old.TermLength)
}

// since is how long it is to when the one who makes o was first told of the term of
// old: negative where that is past.
func (r *recorder) since(o *op, old *le.RaceEntry) time.Duration {
	seen, told := o.actor.terms[termOf(old)]
	if !told {
		return time.Hour // it cannot have waited
	}
	return seen.mono - o.mono
}

// lastIsMarked reports whether the leadership that is on record rests on monotonic clocks alone, or the newest that
// somebody knows.
func (w *world) lastIsMarked() bool {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	marked := w.rec.records[len(w.rec.records)-1].Unsynchronized
	for _, h := range w.hosts {
		if h.proc != nil && h.proc.actor.newest != nil {
			marked = marked || h.proc.actor.newest.Unsynchronized
		}
	}
	return marked
}

// runs reports whether the term of p's own record e, which nobody has changed since,
// is not over for p by either clock, so that it was to be released.
func (w *world) runs(p *process, e *le.RaceEntry, now reading) bool {
	if p.measures(e.ElectionNumber) {
		return now.mono < p.actor.terms[termOf(e)].mono+e.TermLength
	}
	begun, known := p.began[attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}]
	return now.wall.Before(e.TermExpiry) && (!known || now.mono < begun.mono+e.TermLength)
}

// blind is for how long a view may outlast its time because nothing could end it: for
// as long as the machine was suspended and its wall clock, which should have told, was
// set back before anybody looked at it again.
func (r *recorder) blind(g *leadership) time.Duration {
	if !g.p.measures(g.number) {
		return 0
	}
	return g.p.actor.clock.Hidden(r.measured(g, g.attempt()).asked, r.now())
}
