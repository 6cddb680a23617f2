package sim

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// overlap judges two views that are both in the future now. That is never right
// where every clock keeps within its bound and the store forgets nothing.
func (r *recorder) overlap(a, b *leadership) {
	older, newer := a, b
	if a.acquired().at > b.acquired().at {
		older, newer = b, a
	}
	w := newer.acquired()
	first, second := older, newer
	if r.landedAt(first) > r.landedAt(second) {
		first, second = second, first // the older one has extended its term since
	}
	if r.lost(first, second.p.actor, r.began(second), r.indexOf(second)) {
		r.apart(older, newer, "fault: the store was set back, and its record taken by one who did not know better")
		return
	}
	took := r.now() - w.at
	if r.lies && took <= r.uncertainty(older, w) {
		r.apart(older, newer, "overlaps within the measurement's uncertainty")
		return
	}
	if took <= r.blind(older) {
		r.apart(older, newer, "overlaps by machines that were suspended and set back before anybody looked")
		return
	}
	if r.believed {
		r.counts["overlaps"]++
		return
	}
	r.counts["overlaps"]++
	r.failf(newer.p.name, "OVERLAP: the views of leadership %d (%s) and of leadership %d are both in the future, %v after the latter was won", older.number, older.p.name, newer.number, took)
}

// acquired is how the leadership was won.
func (g *leadership) acquired() won {
	for _, w := range g.p.won {
		if w.number == g.number {
			return w
		}
	}
	return won{}
}

// landedAt is when the write happened that the view of g rests on.
func (r *recorder) landedAt(g *leadership) time.Duration { return g.p.landed[g.attempt()] }

// apart counts two leaderships that overlap, once for each pair.
func (r *recorder) apart(older, newer *leadership, why string) {
	pair := [2]*leadership{older, newer}
	if !r.pairs[pair] {
		r.pairs[pair] = true
		r.counts[why]++
	}
}

// began is when the term was asked for that the view of g rests on, and indexOf which
// record that became.
func (r *recorder) began(g *leadership) time.Duration { return g.p.began[g.attempt()].at }

func (r *recorder) indexOf(g *leadership) int { return g.p.index[g.attempt()] }

// erased reports whether the store was set back after the i-th record was written, and
// before the j-th was.
func (r *recorder) erased(i, j int) bool {
	for _, back := range r.backs {
		if i < back && back < j {
			return true
		}
	}
	return false
}

// lost reports whether the write that the view of g rests on was lost, for the one who
// made the j-th record, for which it asked at the true time asked: the store was set
// back in between, and it had not been told of that write; or took it for old, since
// what had been lost before that, or was never committed, was newer; or has found that
// another has led since, who did not know better.
func (r *recorder) lost(g *leadership, by *actor, asked time.Duration, j int) bool {
	i := r.indexOf(g)
	if !r.erased(i, j) || r.shown(i, j) {
		return false
	}
	for _, m := range g.passed {
		if r.erased(i, m) && m < j {
			return true
		}
	}
	for s, seen := range by.told {
		if !g.p.incarnations[s.incarnation] || s.number != g.number || seen.at > asked || seen.expiry.UnixNano() < g.attempt().expiry {
			continue
		}
		if seen.over == nil || r.stood(*seen.over, i) {
			return false
		}
	}
	return true
}

// stood reports whether the state s is that of a record that was there at some time before
// the i-th, and had not been lost by then.
func (r *recorder) stood(s state, i int) bool {
	for k := i; k > 0; k-- {
		if stateOf(&r.records[k]) == s {
			return !r.erased(k, i)
		}
	}
	return false
}

// attempt is the one that the view rests on now.
func (g *leadership) attempt() attempt { return g.p.attempt(g.number, g.view.Get()) }

// attempt is the one by which a view of the leadership ends at end.
func (p *process) attempt(number le.ElectionNumber, end time.Time) attempt {
	if a, known := p.ends[attempt{number, end.UnixNano()}]; known || p.unsynchronized {
		return a
	}
	return attempt{number, end.Add(p.skew).UnixNano()}
}

// stampOf is when the store says that it wrote e.
func stampOf(e *le.RaceEntry) time.Time {
	if e.Token == nil {
		return time.Time{}
	}
	return e.Token.CommitTS()
}
