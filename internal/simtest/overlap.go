package simtest

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// overlap judges two views that are both in the future now. That is never right
// where every clock keeps within its bound and the store forgets nothing.
func (r *recorder) overlap(a, b *reign) {
	older, newer := a, b
	if a.acquired().at > b.acquired().at {
		older, newer = b, a
	}
	w := newer.acquired()
	first, second := older, newer
	if r.landedAt(first) > r.landedAt(second) {
		first, second = second, first // the older one has extended its term since
	}
	if told, news := r.knew(first, second); r.setBack >= r.landedAt(first) && !news {
		if told {
			// After a store was set back twice: it took for old what it was told,
			// since it had seen as great a number before the first time.
			r.counts["the store was set back twice, and its record taken by one who took the lost one for old"]++
		} else {
			r.counts["fault: the store was set back, and its record taken by one who did not know better"]++
		}
		return
	}
	took := r.now() - w.at
	if allowed, known := r.uncertainty(older, w); r.lies && (!known || took <= allowed) {
		r.counts[map[bool]string{true: "overlaps within the measurement's uncertainty", false: "overlaps by clocks that were set twice between two measurements"}[known]]++
		return
	}
	if r.blind(older) {
		r.counts["overlaps by machines that were suspended and set back in one term"]++
		return
	}
	if r.lenient {
		r.counts["overlaps"]++
		return
	}
	r.counts["overlaps"]++
	r.failf(newer.p.name, "OVERLAP: the views of reign %d (%s) and of reign %d are both in the future, %v after the latter was won", older.number, older.p.name, newer.number, took)
}

// acquired is how the reign was won.
func (g *reign) acquired() won {
	for _, w := range g.p.won {
		if w.number == g.number {
			return w
		}
	}
	return won{}
}

// landedAt is when the write happened that the view of g rests on.
func (r *recorder) landedAt(g *reign) time.Duration { return g.p.landed[g.attempt(r.skew)] }

// knew says whether the leader of g, when it asked for the term that its view
// rests on, had been told of the one that the view of other does, and whether that
// was news. Where the store was set back in between, it need not.
func (r *recorder) knew(other, g *reign) (told, news bool) {
	asked := g.p.began[g.attempt(r.skew)].at
	for s, seen := range g.p.actor.told {
		if s.incarnation == other.p.incarnation && s.number == other.number && seen.at <= asked && seen.expiry.UnixNano() >= other.attempt(r.skew).expiry {
			told, news = true, news || seen.news
		}
	}
	return told, news
}

// attempt is the one that the view rests on now.
func (g *reign) attempt(skew time.Duration) attempt { return g.p.attempt(g.number, g.view.Get(), skew) }

// attempt is the one by which a view of the reign ends at end.
func (p *process) attempt(number le.ElectionNumber, end time.Time, skew time.Duration) attempt {
	if p.host.stranger {
		return p.ends[attempt{number, end.UnixNano()}]
	}
	return attempt{number, end.Add(skew).UnixNano()}
}

// stampOf is when the store says that it wrote e.
func stampOf(e *le.RaceEntry) time.Time {
	if e.Token == nil {
		return time.Time{}
	}
	return e.Token.CommitTS()
}
