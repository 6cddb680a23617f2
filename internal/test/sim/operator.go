package sim

import (
	"context"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// operate lets an operator ask for a hand-over: once, or again and again.
func (w *world) operate() {
	a := w.operator()
	if w.rng.IntN(2) == 0 {
		a.link.Set(w.weather(w.clear), false)
	}
	timeout := w.between(0, w.clear-w.now())
	requests, every := []string{w.asked()}, time.Duration(0)
	if w.Nags && w.rng.IntN(2) == 0 {
		every = w.between(w.Term/4, w.Term)
		for range 8 {
			requests = append(requests, w.asked())
		}
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		for _, to := range requests {
			w.request(ctx, a, to)
			if !sleep(ctx, every) {
				return
			}
		}
	}()
}

// asked is whom an operator asks for.
func (w *world) asked() string {
	return []string{le.AnySuccessor, "nobody", w.hosts[w.rng.IntN(len(w.hosts))].id}[w.rng.IntN(3)]
}

// request asks for a hand-over to the named one.
func (w *world) request(ctx context.Context, a *actor, to string) {
	d := le.RaceDecider(displaced{w.decider(a), a.ahead})
	var err error
	if to == le.AnySuccessor {
		err = le.StepDown(ctx, d, true)
	} else {
		err = le.Transfer(ctx, d, to)
	}
	w.rec.note("operator", "asked for %q: %v", to, err)
}

// nag asks a leader that is dead to hand over, every few seconds and each time to
// somebody else, until somebody leads. That must not keep the others from it.
func (w *world) nag(until time.Duration) (stop func()) {
	a := w.operator()
	a.link.calm = 0 // it sees whom it asks
	every := w.between(w.Term/4, w.Term)
	requests := []string{w.asked(), w.asked() + "?", "nobody"}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; w.now() < until && sleep(ctx, every) && !w.ledAgain(); n++ {
			if w.deadHolds() {
				w.rec.count("fault: an operator asked a dead leader to hand over")
				w.request(ctx, a, requests[n%len(requests)])
			}
		}
	}()
	return func() { cancel(); <-done }
}

// ledAgain reports whether somebody has led since it is calm.
func (w *world) ledAgain() bool {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	return w.rec.leaderAgain != 0
}

// deadHolds reports whether the record is held by one who does not run any more.
func (w *world) deadHolds() bool {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	e := &w.rec.records[len(w.rec.records)-1]
	for _, h := range w.hosts {
		for _, p := range h.all {
			if p.incarnations[e.Incarnation] && (p.actor.dead.Load() || p.over) {
				return !e.Vacant()
			}
		}
	}
	return false
}

// operator is somebody with a good clock, or one that is off: within the bound, or
// astray.
func (w *world) operator() *actor {
	var ahead time.Duration
	switch {
	case w.rng.IntN(2) == 0:
	case w.Astray && w.rng.IntN(2) == 0:
		ahead = time.Duration((w.rng.Float64()*2 - 1) * float64(24*time.Hour))
	case w.Wild == 0:
		ahead = w.offset()
	}
	clock := NewClock(w.epoch, 0, ahead, 0, 1)
	return &actor{name: "operator", ahead: ahead, clock: clock, link: NewLink(clock, w.Calm, w.Seed, w.rng.Uint64())}
}

// displaced is the record as one sees it whose clock is ahead. Transfer goes by the
// system's clock, which nobody can set here: so it is the record's times that are moved.
type displaced struct {
	le.RaceDecider
	ahead time.Duration
}

func (d displaced) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := d.RaceDecider.ReadCurrent(ctx)
	if err == nil && !e.TermExpiry.IsZero() {
		e.TermExpiry = e.TermExpiry.Add(-d.ahead)
	}
	return e, err
}

func (d displaced) WriteEntry(ctx context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	e := entry.Clone()
	e.TermExpiry = e.TermExpiry.Add(d.ahead)
	return d.RaceDecider.WriteEntry(ctx, e)
}
