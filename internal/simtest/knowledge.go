package simtest

import (
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
	first reading       // by its clock, when it was told for the first time
	at    time.Duration // and in true time
	asked reading       // when the last read that returned it began
	dated time.Duration // in true time, when it was first told along with the store's stamp; 0: never
	stamp time.Duration // this stamp, as true time: before the write happened, if a feed foretold it

	expiry time.Time
	over   *state // what it had been told of that was newer; nil: nothing
}

// tell notes that an actor was told of a record: by the answer to the read o, or
// where that is nil to a write, or by a feed. With the lock.
func (r *recorder) tell(a *actor, e *le.RaceEntry, o *op) {
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
	if s.dated == 0 && !stampOf(e).IsZero() {
		s.dated, s.stamp = r.now(), stampOf(e).Sub(r.epoch.Round(0))
	}
	if o != nil && o.mono >= s.asked.mono {
		s.asked = reading{o.wall, o.mono}
	}
	a.told[stateOf(e)] = s
}

// confirm notes what else the answer to a write, or to a read, tells a candidate: that
// its own write, which e bears, has happened. A feed shows nothing. With the lock.
func (r *recorder) confirm(a *actor, e *le.RaceEntry, o *op) {
	r.tell(a, e, o)
	if p := a.proc; p != nil && !e.Vacant() && p.incarnations[e.Incarnation] {
		k := attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}
		if _, known := p.confirmed[k]; !known {
			p.confirmed[k] = r.now()
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
			r.tell(a, e, nil)
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
