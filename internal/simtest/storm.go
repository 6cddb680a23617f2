package simtest

import (
	"context"
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// storm lets things go wrong for some terms.
func (w *world) storm() {
	until := w.now() + w.between(2*w.Term, 8*w.Term)
	w.clear = until
	w.rec.note("sim", "storm until %.3f", until.Seconds())
	for w.now() < until && !w.rec.failed() {
		w.happen(until)
		w.pass(min(w.between(0, w.Term), until-w.now()))
	}
}

// happen lets one thing happen.
func (w *world) happen(until time.Duration) {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	switch n := w.rng.IntN(20); {
	case h.proc == nil && n < 10:
		h.launch()
	case n < 7:
		all := w.rng.IntN(3) == 0
		for _, g := range w.hosts {
			if g == h || all {
				g.link.Set(w.weather(until), w.rng.IntN(4) == 0)
			}
		}
	case n < 9:
		h.link.Set(Weather{}, false)
	case n < 12:
		h.clock.Step(w.offset())
		w.rec.note(h.id, "its clock is stepped to %v", h.clock.Now().Sub(w.epoch.Round(0))-w.now())
	case h.proc == nil:
	case n < 15 && h.thaw == nil:
		h.freeze(w.rng.IntN(2) == 0)
	case n < 16:
		h.resume()
	case n < 17:
		h.crash()
	case n < 18 && h.thaw == nil:
		h.leave()
	case n < 19 && h.thaw == nil:
		p := h.proc
		w.rec.note(p.name, "is told to resign")
		timeout := w.between(1, 2*w.Term)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_ = p.campaign.Resign(ctx)
		}()
	default:
		w.operate()
	}
}

// weather is one in which some things go wrong.
func (w *world) weather(until time.Duration) Weather {
	x := Weather{Until: min(until, w.now()+w.between(w.Term/4, 4*w.Term))}
	some := func(p *float64) { *p = w.rng.Float64() * w.rng.Float64() }
	kinds := []func(){
		func() { some(&x.Slow); x.Latency = w.between(0, w.Term/4) },
		func() { some(&x.Slow); x.Latency = w.between(0, 3*w.Term/2) },
		func() { some(&x.LoseRequest); some(&x.Silent) },
		func() { some(&x.LoseAnswer); some(&x.Silent) },
		func() { x.LoseRequest = 1; x.Silent = 1; x.FeedSilent = 1 },
		func() { x.LoseAnswer = 1; some(&x.Silent) },
		func() { some(&x.Late) },
		func() { some(&x.Twice) },
		func() { x.Twice = 1 },
		func() { some(&x.Stale) },
		func() { some(&x.Hang) },
		func() { some(&x.FeedFail); some(&x.FeedSilent) },
		func() { some(&x.FeedLate); some(&x.FeedOld); some(&x.FeedRepeat); some(&x.FeedHang) },
		func() { some(&x.Sick) },
		func() { some(&x.SickHang) },
		func() { some(&x.SlowCallbacks) },
		func() { some(&x.Resigns) },
	}
	for range 1 + w.rng.IntN(4) {
		kinds[w.rng.IntN(len(kinds))]()
	}
	return x
}

// operate lets an operator ask for a hand-over.
func (w *world) operate() {
	clock := NewClock(w.epoch, 0, 0, 0, 1)
	a := &actor{name: "operator", clock: clock, link: NewLink(clock, w.Calm, w.Seed, w.rng.Uint64())}
	if w.rng.IntN(2) == 0 {
		a.link.Set(w.weather(w.clear), false)
	}
	d := w.decider(a)
	to := []string{le.AnySuccessor, "nobody", w.hosts[w.rng.IntN(len(w.hosts))].id}[w.rng.IntN(3)]
	timeout := w.between(0, w.clear-w.now())
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		var err error
		if to == le.AnySuccessor {
			err = le.StepDown(ctx, d)
		} else {
			err = le.Transfer(ctx, d, to)
		}
		w.rec.note("operator", "asked for %q: %v", to, err)
	}()
}
