package simtest

import (
	"context"
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

// sighting is when somebody was told of a state of the record.
type sighting struct {
	first reading       // by its clock, when it was told for the first time
	at    time.Duration // and in true time
	asked reading       // when the last read that returned it began

	expiry time.Time
	news   bool // it was newer than all that it had been told of
}

// tell notes that an actor was told of a record: by the answer to the read o, or
// where that is nil to a write, or by a feed. With the lock.
func (r *recorder) tell(a *actor, e *le.RaceEntry, o *op) {
	if a.told == nil {
		a.told = map[state]sighting{}
	}
	a.greatest = max(a.greatest, e.ElectionNumber)
	s, again := a.told[stateOf(e)]
	if !again {
		s.first.wall, s.first.mono = a.clock.Both()
		s.at, s.expiry = r.now(), e.TermExpiry
		s.news = a.newest == nil || e.Compare(a.newest) > 0
		if s.news {
			a.newest = e.Clone()
		}
	}
	if o != nil && o.mono >= s.asked.mono {
		s.asked = reading{o.wall, o.mono}
	}
	a.told[stateOf(e)] = s
	if p := a.proc; p != nil && !e.Vacant() && e.Incarnation == p.incarnation {
		if k := (attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}); p.confirmed[k] == 0 {
			p.confirmed[k] = r.now()
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
			r.tell(a, e, nil)
		}
	}
}

// land makes a write, and looks at what has come of it. A real client may say that
// it failed though it has happened: that is read back.
func (r *recorder) land(ctx context.Context, d le.RaceDecider, o *op) (le.LeaderToken, error) {
	r.landing <- struct{}{}
	defer func() { <-r.landing }()
	token, err := d.WriteEntry(ctx, o.write)
	now := token
	if err != nil {
		if _, exact := d.(*Store); exact || r.hasLanded(o) {
			return token, err
		}
		e, readErr := d.ReadCurrent(ctx)
		if readErr != nil || !sameWrite(e, o.write) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.doubtful = append(r.doubtful, o)
			return token, err
		}
		now = e.Token
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && sameWrite(o.write, &r.records[len(r.records)-1]) {
		return token, err // it is known already: an operator may have asked for the same twice
	}
	r.happened(o, now)
	return token, err
}

func (r *recorder) hasLanded(o *op) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return o.landed
}

// sameWrite says whether the record e is what was written.
func sameWrite(e, write *le.RaceEntry) bool {
	return stateOf(e) == stateOf(write) && e.LeaderID == write.LeaderID && e.Successor == write.Successor && e.TermExpiry.Equal(write.TermExpiry)
}

// sighted looks at every record that the store itself gives out, for one that a
// client wrote in spite of what it said.
func (r *recorder) sighted(e *le.RaceEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, o := range r.doubtful {
		if sameWrite(e, o.write) {
			r.doubtful = append(r.doubtful[:i], r.doubtful[i+1:]...)
			if e.Compare(&r.records[len(r.records)-1]) > 0 {
				r.counts["writes that happened in spite of the client's word"]++
				r.happened(o, e.Token)
			}
			return
		}
	}
}

// happened takes in a write that has changed the record. With the lock.
func (r *recorder) happened(o *op, token le.LeaderToken) {
	if o.landed {
		return // seen by somebody in the meantime
	}
	e := *o.write.Clone()
	e.Token = token
	o.landed = true
	old := &r.records[len(r.records)-1]
	r.add(&e)
	r.logf(o.actor.name, "landed: %v", r.short(&e))
	r.landed(o, old, &e)
	r.check()
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
	r.add(&back)
	r.setBack = r.now()
	r.logf("store", "is set back to %v", r.short(&back))
}
