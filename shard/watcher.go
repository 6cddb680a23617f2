package shard

import (
	"context"
	"math"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// watcher follows one seat for a coordinator. A feed may tell of what is undone, and then a
// session that seemed to be over may begin only now: numbers may skip, and come back to one
// that was skipped. So what is told of another session than the one that was read last is
// read. Of that one itself a push is enough for a fact: it releases, and says what it has
// let go, only when that is true, whatever becomes of the write. That it was extended is no
// fact: when its term would be over, it is read.
type watcher struct {
	c       *coordinator
	seat    int
	decider leaderelection.RaceDecider
	last    *leaderelection.RaceEntry // read last; nil: never, or that failed
	since   time.Time                 // when that state was first read
	until   time.Time                 // when the term is over that it was extended to, read or told
	open    *leaderelection.RaceEntry // told of, and not yet shown by a read; nil: nothing
	tries   int                       // reads since, or reads that failed
}

func (w *watcher) run() {
	cfg := &w.c.m.cfg
	watch := leaderelection.WatchConfig{
		Decider: w.decider, MaxClockSkew: cfg.MaxClockSkew, SharedClock: cfg.SharedClock, PollInterval: cfg.PollInterval, Clock: cfg.Clock,
	}
	news := make(chan *leaderelection.RaceEntry)
	w.c.watchers.Add(1)
	go func() {
		defer w.c.watchers.Done()
		for w.c.ctx.Err() == nil {
			err := watch.Watch(w.c.ctx, func(_ context.Context, e leaderelection.RaceEntry) {
				select {
				case news <- &e:
				case <-w.c.ctx.Done():
				}
			})
			w.c.post(seatEvent{seat: w.seat, err: err})
			w.c.rest(cfg.TermLength)
		}
	}()
	w.look()
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for {
		timer.Reset(w.due())
		select {
		case <-w.c.ctx.Done():
			return
		case e := <-news:
			w.told(e)
		case <-timer.C:
			w.look()
		}
	}
}

// told is what Watch has to say.
func (w *watcher) told(e *leaderelection.RaceEntry) {
	if w.last != nil && sameSession(e, w.last) {
		w.c.post(seatEvent{seat: w.seat, entry: e, told: true})
		if !e.Vacant() {
			w.extended(e)
			return
		}
	}
	// A read may lag behind what was told; and what was told may be undone. Then Watch has
	// seen a newer record than there is, and says nothing of that one: so reads do.
	w.open, w.tries = e, 0
	w.look()
}

// look reads the seat's record.
func (w *watcher) look() {
	e := w.c.lookAt(w.seat, w.decider, w.lapsed)
	if w.tries++; e == nil {
		w.last = nil
		return
	}
	if w.last == nil || w.last.Compare(e) != 0 {
		w.since = time.Now()
	}
	if w.last == nil || !sameSession(w.last, e) {
		w.until = time.Time{}
	}
	w.last = e
	w.extended(e)
	if w.open != nil && e.Compare(w.open) >= 0 {
		w.open = nil
	}
	if w.open == nil {
		w.tries = 0
	}
}

// extended notes to when a session says that its term goes on.
func (w *watcher) extended(e *leaderelection.RaceEntry) {
	if e.TermExpiry.After(w.until) {
		w.until = e.TermExpiry
	}
}

// lapsed reports whether the term of e, read now, is over, it seems. To be sure of it is for
// the election that seals the seat.
func (w *watcher) lapsed(e *leaderelection.RaceEntry) bool {
	if e.Vacant() || w.c.m.free(e) {
		return !e.Vacant()
	}
	return w.unsynchronized(e) && w.last != nil && w.last.Compare(e) == 0 && time.Since(w.since) > w.c.m.cfg.TermLength+w.c.m.cfg.MaxClockSkew
}

// unsynchronized reports whether the term of e cannot be compared with a clock.
func (w *watcher) unsynchronized(e *leaderelection.RaceEntry) bool {
	return e.Unsynchronized || w.c.m.cfg.Unsynchronized
}

// due is for how long nothing need be read.
func (w *watcher) due() time.Duration {
	cfg := &w.c.m.cfg
	switch {
	case w.last == nil || w.open != nil:
		return cfg.TermLength / 8 * time.Duration(min(w.tries, 4))
	case w.last.Vacant():
		return math.MaxInt64 // Watch tells when there is another
	case w.unsynchronized(w.last):
		return cfg.TermLength
	}
	// Beyond that, once a term, until it is sealed.
	if wait := cfg.Clock.Until(w.until.Add(cfg.MaxClockSkew)); wait > 0 {
		return wait + time.Millisecond
	}
	return cfg.TermLength
}

// lookAt reads a seat's record, has that learned, and returns it; nil if that failed.
func (c *coordinator) lookAt(seat int, d leaderelection.RaceDecider, lapsed func(*leaderelection.RaceEntry) bool) *leaderelection.RaceEntry {
	e, err := call(c.ctx, c.m.stores, seatName(seat), c.m.cfg.TermLength/4, current(d))
	if err != nil {
		c.post(seatEvent{seat: seat, err: err})
		return nil
	}
	c.post(seatEvent{seat: seat, entry: e.Clone(), lapsed: lapsed(e)})
	return e
}
