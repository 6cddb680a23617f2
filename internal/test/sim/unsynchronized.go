package sim

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

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
