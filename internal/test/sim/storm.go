package sim

import "time"

// storm lets things go wrong for some terms.
func (w *world) storm() {
	until := w.now() + w.between(2*w.Term, 8*w.Term)
	w.clear = until
	w.rec.note("sim", "storm until %.3f", until.Seconds())
	for w.now() < until && !w.rec.failed() {
		w.happen(until, nil)
		w.pass(min(w.between(0, w.Term), until-w.now()))
	}
}

// happen lets one thing happen, but not to the host that is to be spared.
func (w *world) happen(until time.Duration, spare *host) {
	if o := w.watcher; o != nil && w.rng.IntN(8) == 0 {
		o.actor.link.Set(w.weather(until), w.rng.IntN(4) == 0)
		o.actor.clock.Step(w.offset())
	}
	if w.Lag && w.rng.IntN(8) == 0 {
		w.stick()
	}
	if w.Backups && spare == nil && w.rng.IntN(12) == 0 {
		w.restore()
	}
	if w.Strangers && spare == nil && w.rng.IntN(6) == 0 {
		w.meddle()
	}
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if h == spare {
		return
	}
	if h.proc != nil && h.proc.isBarred() {
		h.proc = nil
	}
	if w.rng.IntN(6) == 0 {
		h.doubt(false)
	}
	switch n := w.rng.IntN(24); {
	case h.proc == nil && n < 12:
		h.launch()
	case n < 8:
		all := w.rng.IntN(3) == 0
		for _, g := range w.hosts {
			if g == h || all && g != spare {
				g.link.Set(w.weather(until), w.rng.IntN(4) == 0)
			}
		}
	case n < 9:
		h.link.Set(Weather{}, false)
	case n < 12:
		h.step()
	case h.proc == nil:
	case n < 15:
		h.freeze(w.rng.IntN(2) == 0)
	case n < 16:
		h.resume()
	case n < 18:
		h.clock.Ambush(func() { w.do(func() { h.ambushed(h.proc) }) })
	case n < 19:
		h.crash()
	case n < 20:
		h.leave()
	case n < 21:
		h.resign(w.between(1, 2*w.Term))
	case !w.watching:
		w.operate()
	}
}

// stick has the replica that lags catch up, but for a few writes, and no further.
func (w *world) stick() {
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	w.rec.replica = max(len(w.rec.records)-1-w.rng.IntN(4), 0)
}

// restore sets the store back to one of its last records, as from a backup.
func (w *world) restore() {
	store, ok := w.store.(*Memory)
	if !ok {
		return
	}
	w.rec.landing <- struct{}{}
	defer func() { <-w.rec.landing }()
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	n := len(w.rec.records)
	back := 1 + w.rng.IntN(12)
	if back >= n-1 {
		return
	}
	e := w.rec.records[n-1-back].Clone()
	w.rec.setBackTo(e, store.SetBack(e))
	w.rec.counts["fault: the store was set back"]++
	if g := w.rec.leader; g != nil && g.acts() && g.inFuture() {
		w.rec.counts["fault: the store was set back under a leader"]++
	}
}

// ambushed lets something happen to a process, which waits for that to be done.
func (h *host) ambushed(p *process) {
	w := h.w
	if p == nil || h.proc != p || w.now() >= w.clear {
		return
	}
	w.rec.count("ambushes")
	switch n := w.rng.IntN(8); {
	case n < 3:
		h.freeze(w.rng.IntN(2) == 0)
		pause := w.between(0, min(2*w.Term, w.clear-w.now()+1))
		go func() {
			time.Sleep(pause)
			w.do(h.resume)
		}()
	case n < 4:
		h.crash()
	case n < 5:
		h.leave()
	case n < 6:
		h.step()
	case n < 7 && !w.watching:
		w.operate()
	default:
		h.resign(w.between(1, 2*w.Term))
	}
}

// do has the simulation's own goroutine call f, and waits until it has.
func (w *world) do(f func()) {
	done := make(chan struct{})
	select {
	case w.surprises <- func() { f(); close(done) }:
		<-done
	case <-w.over:
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
		func() { some(&x.Foretold); some(&x.Undone); some(&x.Silent) },
		func() { x.Foretold = 1; x.Undone = 1; some(&x.Silent) },
		func() { some(&x.Refuse) },
		func() { x.Refuse = 1 },
		func() { some(&x.Hang) },
		func() { some(&x.FeedFail); some(&x.FeedSilent) },
		func() { some(&x.FeedLate); some(&x.FeedOld); some(&x.FeedRepeat); some(&x.FeedHang) },
		func() { some(&x.Sick) },
		func() { some(&x.SickHang) },
		func() { some(&x.SlowCallbacks) },
		func() { some(&x.Resigns) },
		func() { some(&x.StuckHooks) },
		func() { some(&x.Ambush) },
		func() { some(&x.Ambush) },
	}
	for range 1 + w.rng.IntN(4) {
		kinds[w.rng.IntN(len(kinds))]()
	}
	if w.rec.wired() {
		switch w.rng.IntN(5) {
		case 0, 1:
			x.Wire = 0.7 * w.rng.Float64()
		case 2:
			x.WireCut, x.WireSilent = true, w.rng.IntN(2) == 0
		}
	}
	return x
}

// harmless is a weather that must not cost the leader p its leadership.
func (w *world) harmless(p *process, until time.Duration) Weather {
	x := Weather{Until: until, SpareReads: true}
	some := func(p *float64) { *p = w.rng.Float64() }
	if w.rng.IntN(2) == 0 {
		some(&x.FeedFail)
		some(&x.FeedSilent)
		some(&x.FeedLate)
		some(&x.FeedOld)
		some(&x.FeedRepeat)
	}
	if w.rng.IntN(4) == 0 {
		some(&x.StuckHooks)
	}
	patience := 2
	if w.Lag {
		patience = 4 // the first read may be the replica's
	}
	// What follows costs the leader a read and a back-off for each extension,
	// for which it has half of the view's span.
	if time.Duration(float64(p.span())/2*(1-2*w.uneven())) < time.Duration(patience)*backoff(p.term)+8*w.Calm {
		return x
	}
	switch w.rng.IntN(4) {
	case 0:
		some(&x.Twice)
	case 1:
		x.Twice = 1
	case 2:
		x.LoseAnswer = 1
	case 3:
		x.Slow, x.Latency = 1, p.term/20
	}
	return x
}
