package simtest

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// strangers says whether a and the one who wrote e have no clock in common: one of
// them at least has Unsynchronized set, whatever e says.
func (r *recorder) strangers(a *actor, e *le.RaceEntry) bool {
	return a.proc != nil && a.proc.host.stranger || e.Unsynchronized || r.wroteStranger[e.Incarnation]
}

// waited: who cannot compare clocks contests a held record only when it has seen
// no change for a term and the allowance, by its own monotonic clock, counted from
// when it was told; a reservation for another when it has not for a term.
func (r *recorder) waited(o *op, old, e *le.RaceEntry) {
	who := o.actor.name
	var wait time.Duration
	switch {
	case old.Vacant() && (old.Successor == le.AnySuccessor || old.Successor == e.LeaderID):
		return
	case old.Vacant():
		wait = old.TermLength
	case old.Incarnation == e.Incarnation:
		return
	default:
		wait = old.TermLength + max(r.skew, old.TermLength/100)
	}
	seen, told := o.actor.told[stateOf(old)]
	switch at := seen.first.mono + wait; {
	case !told:
		r.failf(who, "contests %v, of which it has not been told", r.short(old))
	case o.mono < at:
		r.failf(who, "contests %v too early, by %v of its monotonic clock", r.short(old), at-o.mono)
	case !old.Vacant() && o.readAt.mono < at:
		r.failf(who, "contests %v without having read it since it was contestable", r.short(old))
	}
}

// runs says whether the term of p's own record e, which nobody has changed since,
// is not over for p, so that it was to be released.
func (w *world) runs(p *process, e *le.RaceEntry, now reading) bool {
	if p.host.stranger {
		return now.mono < p.actor.told[stateOf(e)].first.mono+e.TermLength
	}
	return now.wall.Before(e.TermExpiry)
}

// blind says whether a view may outlast its time because nothing could end it: the
// machine was suspended, for which its monotonic clock stood still, and the wall
// clock that should have told was set back in the same term by about as much. (By
// more than that ends the view: see alive.)
func (r *recorder) blind(g *reign) bool {
	m, clock := r.measured(g, g.attempt(r.skew)), g.p.actor.clock
	return g.p.host.stranger && clock.Stepped(m.asked-1, r.now()) && clock.Suspended(m.asked, r.now())
}
