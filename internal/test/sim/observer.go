package sim

import (
	"context"
	"errors"
	"sync"

	le "github.com/c8e606e4/leaderelection"
)

// observer is somebody who watches the election, with a clock and a link of its
// own, and holds Watch to what it promises.
type observer struct {
	w      *world
	actor  *actor
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error

	mu     sync.Mutex
	busy   bool
	barred bool // it has ended by itself, as it may
	last   *le.RaceEntry
	lapsed *le.RaceEntry
}

func (w *world) observe() *observer {
	clock := NewClock(w.epoch, w.Skew, w.offset(), (w.rng.Float64()*2-1)*w.Drift, 1+(w.rng.Float64()*2-1)*w.Drift)
	clock.spun = func() { go w.rec.fail("observer", "hot loop: the clock was read %d times at one moment", maxReadings) }
	a := &actor{name: "observer", clock: clock, link: NewLink(clock, w.Calm, w.Seed, 99)}
	a.link.pauses = w.Pauses
	o := &observer{w: w, actor: a, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	o.cancel = cancel
	cfg := le.WatchConfig{Decider: w.decider(a), MaxClockSkew: w.Skew, ClockPolicy: clockPolicy(w.Skew, false), Clock: clock, Lapsed: o.lapse}
	if w.rng.IntN(2) == 0 {
		cfg.PollInterval = w.between(w.Term/10, w.Term)
	}
	a.bound = opsBound((w.Term-w.Skew)/4, max(cfg.PollInterval, w.Term/10), w.uneven())
	go func() {
		defer close(o.done)
		o.err = cfg.Watch(ctx, o.record)
		o.mu.Lock()
		defer o.mu.Unlock()
		w.rec.mu.Lock()
		o.barred = w.rec.bars(a, o.err)
		w.rec.mu.Unlock()
		if o.busy || !errors.Is(o.err, errLeft) && !o.barred {
			w.rec.fail("observer", "Watch has returned %v (callback running: %v)", o.err, o.busy)
		}
	}()
	return o
}

// enter begins a callback, leave ends it.
func (o *observer) enter(what string, e *le.RaceEntry) {
	o.w.rec.note("observer", "%s %v", what, o.w.rec.short(e))
	o.w.rec.count("observed: " + what)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		o.w.rec.fail("observer", "%s %v while another callback is running", what, o.w.rec.short(e))
	}
	o.busy = true
}

func (o *observer) leave() {
	o.actor.link.rest(o.actor.link.habit().windDown)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
}

// record is the callback for each new record.
func (o *observer) record(_ context.Context, e le.RaceEntry) {
	o.enter("record", &e)
	defer o.leave()
	o.mu.Lock()
	last := o.last
	o.last = &e
	o.mu.Unlock()
	if last != nil && !o.w.rec.follows(&e, last) {
		o.w.rec.fail("observer", "is told of %v after %v", o.w.rec.short(&e), o.w.rec.short(last))
	}
	if e.ElectionNumber == le.NoElections {
		o.w.rec.fail("observer", "is told of an election that nobody has led")
	}
}

// lapse is the callback for a term that has run out.
func (o *observer) lapse(_ context.Context, e le.RaceEntry) {
	o.enter("lapse", &e)
	defer o.leave()
	o.mu.Lock()
	last, lapsed := o.last, o.lapsed
	o.lapsed = &e
	o.mu.Unlock()
	if last == nil || last.Compare(&e) != 0 || e.Vacant() || lapsed != nil && lapsed.Compare(&e) == 0 {
		o.w.rec.fail("observer", "is told that %v has lapsed, after the record %v and the lapse of %v", o.w.rec.short(&e), o.w.rec.short(last), o.w.rec.short(lapsed))
	}
	o.w.rec.mu.Lock()
	defer o.w.rec.mu.Unlock()
	seen := o.actor.told[stateOf(&e)]
	early := seen.asked.wall.Before(e.TermExpiry.Add(o.w.Skew))
	switch first := o.actor.terms[termOf(&e)].mono; {
	case e.Unsynchronized:
		early = seen.asked.mono < first+e.TermLength+max(o.w.Skew, e.TermLength/100)
	case (o.w.rec.wild || o.w.rec.lies) && e.Hold == 0: // its TermExpiry may be disproved
		early = early && seen.asked.mono < first+2*e.TermLength
	}
	if early {
		o.w.rec.failf("observer", "is told that %v has lapsed, but has not read it again since", o.w.rec.short(&e))
	}
}

// upToDate: in calm weather the observer knows who leads, or who did lately: a
// candidate whose clock drifts out of its bound steps down in any weather.
func (o *observer) upToDate() {
	o.mu.Lock()
	last, barred := o.last, o.barred
	o.mu.Unlock()
	if barred {
		return
	}
	o.w.rec.mu.Lock()
	defer o.w.rec.mu.Unlock()
	i := len(o.w.rec.records) - 1
	for o.w.rec.times[i] > o.w.now()-o.w.leaderWithin() {
		i--
	}
	then := &o.w.rec.records[i]
	if last == nil && 2*o.w.leaderWithin() < 5*le.DefaultTermLength/4 {
		return // it knows nothing of the term yet, and takes it for the default: this is its standoff
	}
	if then.ElectionNumber != le.NoElections && (last == nil || last.ElectionNumber < then.ElectionNumber) {
		o.w.rec.failf("observer", "knows of %v, long after %v", o.w.rec.short(last), o.w.rec.short(then))
	}
}
