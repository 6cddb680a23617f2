package sim

import (
	"slices"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

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
	asked  reading       // when the last read that returned it began
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
	if o != nil && o.mono >= s.asked.mono {
		s.asked = reading{o.wall, o.mono}
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
		if e.Emptied || doubted || other && how == wasRead && termOf(e) != termOf(n) {
			r.hush(a, how)
		}
		a.heard, a.proved, a.doubts, a.older = e.Clone(), how != wasPushed, false, nil
	case order == 0 && !other:
		if how != wasPushed {
			a.proved, a.doubts = true, false
		}
	case how != wasPushed:
		again := slices.Contains(a.older, termOf(e))
		a.doubts = true
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
	if p := a.proc; p != nil && how != wasPushed {
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
