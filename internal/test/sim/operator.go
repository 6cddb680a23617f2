package sim

import (
	"context"
	"math/rand/v2"
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

// DrawStrangers returns the simulation of a seed in which others' tools change the record: they
// delete it, empty it, make it again and edit it. The store shows which record was emptied, and when
// each was written.
func DrawStrangers(seed uint64) Params {
	p := Draw(seed)
	rng := rand.New(rand.NewPCG(seed, 12))
	if p.Length != 10*time.Minute { // leaderships are to come more slowly than seconds
		p.Term, p.Skew, p.Poll, p.Drain, p.Calm, p.Length = 15*time.Second, time.Second, 0, 15*time.Second, 50*time.Millisecond, 10*time.Minute
	}
	p.Strangers, p.Stamp, p.Backups = true, time.Microsecond, false
	// A candidate knows only of its own settings what an emptied record no longer says.
	p.Mixed, p.Hold = false, 0
	if rng.IntN(2) == 0 {
		p.Feed, p.Ranks = true, 2 // who hears of what is undone, and asks
	}
	return p
}

// meddle lets a stranger change the record.
func (w *world) meddle() {
	store, ok := w.store.(*Memory)
	if !ok {
		return
	}
	if w.Feed && w.rng.IntN(3) == 0 {
		w.undo(store)
		return
	}
	w.rec.landing <- struct{}{}
	defer func() { <-w.rec.landing }()
	now, _ := store.Current()
	deed, e := w.deed(now)
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	w.rec.setBackTo(e, store.SetBack(e))
	w.rec.counts["fault: a stranger "+deed+" the record"]++
	if g := w.rec.leader; g != nil && g.acts() && g.inFuture() {
		w.rec.counts["fault: a stranger "+deed+" the record under a leader"]++
	}
}

// deed is what a stranger makes of the record that is there now.
func (w *world) deed(now *le.RaceEntry) (string, *le.RaceEntry) {
	n := w.rng.IntN(8)
	switch {
	case n < 2:
		return "deleted", &le.RaceEntry{}
	case n < 4 || now.ElectionNumber == le.NoElections:
		return "emptied", &le.RaceEntry{Emptied: true}
	case n < 5:
		return "made anew", now // deleted, and made again of a copy
	}
	switch w.rng.IntN(3) {
	case 0:
		now.Extra = map[string]string{"note": w.hosts[0].id}
	case 1:
		now.Successor = w.asked() // without raising anything
	default:
		now.ElectionNumber += le.ElectionNumber(1 + w.rng.IntN(1000))
	}
	return "edited", now
}

// undo lets feeds tell of a request, or of an extension, that is undone. An operator's request lands in
// its place, of the same order.
func (w *world) undo(store *Memory) {
	now, _ := store.Current()
	if now.Vacant() {
		return
	}
	undone := now.Clone()
	undone.Extension++
	// No leader writes a term that ends later than this, by a clock that is right.
	latest := w.epoch.Round(0).Add(w.now() + now.TermLength).Sub(now.TermExpiry)
	if w.rng.IntN(2) == 0 || latest <= 1 {
		undone.Successor = w.asked()
	} else {
		undone.TermExpiry = undone.TermExpiry.Add(w.between(1, min(w.Term/2, latest)))
	}
	undo := store.Foretell(undone)
	if undo == nil {
		return
	}
	w.rec.note("stranger", "feeds tell of %v, which is undone", w.rec.short(undone))
	a, to, pause := w.operator(), w.asked(), w.between(0, w.Term/8)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), w.Term/4)
		defer cancel()
		_ = sleep(ctx, pause)
		undo()
		w.request(ctx, a, to)
		w.rec.mu.Lock()
		defer w.rec.mu.Unlock()
		for _, e := range w.rec.records {
			if e.Compare(undone) == 0 && e.Incarnation == undone.Incarnation && !alike(&e, undone) {
				w.rec.counts["fault: another record took the order of one that was undone"]++
				return
			}
		}
	}()
}

// overEmptied is how long it is from o until the emptied record, which the last one is over, is to be
// had: a term of the process that takes it, counted from when the record was emptied.
func (r *recorder) overEmptied(o *op) time.Duration {
	p := o.actor.proc
	since := o.at - r.times[len(r.times)-2]
	return p.term + p.allowance(p.term) - time.Duration(float64(since)*(1+2*r.drift)) - time.Millisecond
}

// repeats reports whether the number of the i-th record must not be given out again over old, though
// strangers have erased it: over no record, a process that knows nothing of it goes by the time, unless
// that has not come as far yet by a clock that is behind. A number that was ahead of the time was a stranger's.
func (r *recorder) repeats(o *op, old *le.RaceEntry, i int) bool {
	at, slack, n := r.epoch.Add(o.at), r.spec.Skew+time.Second, r.records[i].ElectionNumber
	ahead := n > le.ElectionNumber(r.epoch.Add(r.times[i]+slack).Unix())
	return r.strangers && old.ElectionNumber == le.NoElections && !ahead && n < le.ElectionNumber(at.Add(-slack).Unix())
}

// shown reports whether each change by which the i-th record was erased before the j-th is one that the
// store shows to have emptied it, and the j-th is an acquisition over such a one. A leader that extends its
// term over an emptied record takes it for what it has written itself, unless it has heard of another.
func (r *recorder) shown(i, j int) bool {
	if j == 0 || !r.records[j-1].Emptied || r.records[j].Extension > 0 {
		return false
	}
	for _, back := range r.backs {
		if i < back && back < j && !r.records[back].Emptied {
			return false
		}
	}
	return true
}
