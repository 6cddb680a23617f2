package shard

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// watcher follows one seat for a coordinator.
//
// A feed may report what is undone. Then a session that seemed to be over may begin only now, since
// numbers may be skipped and come back. So if a push is about another session than the one that was
// read last, the watcher reads. If it is about that session itself, a push is enough for a fact: a
// member writes that it has released, or let go, only when that is true, whatever becomes of the
// write. That a session was extended is not a fact: when its term would be over, the watcher reads.
type watcher struct {
	c       *coordinator
	seat    int
	decider leaderelection.RaceDecider
	last    *leaderelection.RaceEntry // read last; nil: never, or that failed
	since   time.Time                 // when that state was first read
	until   time.Time                 // the end of the last term that was read or pushed
	open    *leaderelection.RaceEntry // pushed, and not yet shown by a read; nil: nothing
	tries   int                       // reads since open, or reads that failed
	moving  *moving                   // whether the session is asked to let go of shards
	dead    chan struct{}             // the process of the session that was read is proved dead
	mourned string                    // the incarnation whose death dead reports
	unwatch func()
}

func (w *watcher) run() {
	cfg := &w.c.m.cfg
	watch := leaderelection.WatchConfig{
		Decider: w.decider, MaxClockSkew: cfg.MaxClockSkew, ClockPolicy: cfg.ClockPolicy, PollInterval: cfg.PollInterval, Clock: cfg.Clock,
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
			sleep(w.c.ctx, cfg.TermLength)
		}
	}()
	w.dead = make(chan struct{}, 1)
	defer w.mourn(nil)
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
		case <-w.moving.changed:
		case <-w.dead:
			w.look()
		case <-timer.C:
			w.look()
		}
	}
}

// mourn arranges that w.dead reports when the process of the session e is proved dead. If e is nil,
// it ends that.
func (w *watcher) mourn(e *leaderelection.RaceEntry) {
	line, of := w.c.m.cfg.Lifeline, ""
	if line != nil && e != nil && !e.Vacant() {
		of = e.Incarnation
	}
	if of == w.mourned {
		return
	}
	if w.unwatch != nil {
		w.unwatch()
	}
	w.mourned, w.unwatch = of, nil
	if of != "" {
		w.unwatch = line.OnDeath(of, func() {
			select {
			case w.dead <- struct{}{}:
			default:
			}
		})
	}
}

// moving says whether a seat's record is read often. It is if the store does not push, and the
// session is asked to let go of shards, or a member may take the seat before anything is given out.
type moving struct {
	now     atomic.Bool
	changed chan struct{}
}

func (m *moving) set(now bool) {
	if m.now.Swap(now) != now {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// told takes in a record from Watch.
func (w *watcher) told(e *leaderelection.RaceEntry) {
	if w.last != nil && sameSession(e, w.last) {
		w.c.post(seatEvent{seat: w.seat, entry: e, told: true})
		if !e.Vacant() {
			w.extended(e)
			return
		}
	}
	// A read may lag behind what was pushed, and what was pushed may be undone. In the second case
	// Watch has seen a newer record than there is, and reports nothing about the real one. So
	// reads must find it.
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
	w.mourn(e)
	w.extended(e)
	if w.open != nil && e.Compare(w.open) >= 0 {
		w.open = nil
	}
	if w.open == nil {
		w.tries = 0
	}
}

// extended notes the end of a session's term.
func (w *watcher) extended(e *leaderelection.RaceEntry) {
	if e.TermExpiry.After(w.until) {
		w.until = e.TermExpiry
	}
}

// lapsed reports whether the term of e, read now, seems to be over, or its process is proved dead.
// The election that seals the seat makes sure of it.
func (w *watcher) lapsed(e *leaderelection.RaceEntry) bool {
	if line := w.c.m.cfg.Lifeline; line != nil && !e.Vacant() && line.Dead(e.Incarnation) {
		return true
	}
	if e.Vacant() || w.c.m.free(e) {
		return !e.Vacant()
	}
	return w.unsynchronized(e) && w.last != nil && w.last.Compare(e) == 0 && time.Since(w.since) > w.c.m.cfg.TermLength+w.c.m.cfg.MaxClockSkew
}

// unsynchronized reports whether the term of e cannot be compared with a clock: nobody's can, or its
// TermExpiry lies so far ahead that one of two clocks is wrong.
func (w *watcher) unsynchronized(e *leaderelection.RaceEntry) bool {
	cfg := &w.c.m.cfg
	latest := cfg.Clock.Now().Add(e.TermLength + 2*cfg.MaxClockSkew)
	return e.Unsynchronized || cfg.ClockPolicy == leaderelection.Unsynchronized || e.TermExpiry.After(latest)
}

// due returns for how long nothing needs to be read.
func (w *watcher) due() time.Duration {
	cfg := &w.c.m.cfg
	switch {
	case w.last != nil && w.open == nil && w.moving != nil && w.moving.now.Load():
		if w.last.Vacant() { // twice in the moment for which settle waits
			return hurried(cfg.TermLength) / 2
		}
		return hurried(cfg.TermLength)
	case w.last == nil || w.open != nil:
		return cfg.TermLength / 8 * time.Duration(min(w.tries, 4))
	case w.last.Vacant():
		return math.MaxInt64 // Watch reports the next session
	case w.unsynchronized(w.last):
		return cfg.TermLength
	}
	// After the end of the term, once a term, until the seat is sealed.
	if wait := cfg.Clock.Until(w.until.Add(cfg.MaxClockSkew)); wait > 0 {
		return wait + time.Millisecond
	}
	return cfg.TermLength
}

// lookAt reads a seat's record, posts it to the coordinator, and returns it. It returns nil if that
// failed.
func (c *coordinator) lookAt(seat int, d leaderelection.RaceDecider, lapsed func(*leaderelection.RaceEntry) bool) *leaderelection.RaceEntry {
	e, err := call(c.ctx, c.m.stores, seatName(seat), c.m.cfg.TermLength/4, current(d))
	if err != nil {
		c.post(seatEvent{seat: seat, err: err})
		return nil
	}
	c.post(seatEvent{seat: seat, entry: e.Clone(), lapsed: lapsed(e)})
	return e
}
