package shard

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// facts are what is on record about the seats. If they say that a session has ended, or has let go
// of a shard, that is true for ever, however old they are (rule 3).
type facts struct{ seats map[int]*seat }

func newFacts() *facts { return &facts{seats: map[int]*seat{}} }

// seat is what is known of a seat's record.
type seat struct {
	entry   *leaderelection.RaceEntry     // the newest read; nil: none yet
	told    *leaderelection.RaceEntry     // a newer one of the same session that was only pushed, or nil
	over    leaderelection.ElectionNumber // the greatest session that has ended for sure
	info    *seatInfo                     // of its holder, or nil
	broken  error                         // why there is no info
	lapsed  bool                          // its term seems to have run out
	since   time.Time                     // when its session was first known
	renewed time.Time                     // when it was last seen to be extended
	sealing context.CancelFunc            // not nil: it is being sealed
	moving  moving                        // for its watcher
}

func newSeat() *seat { return &seat{moving: moving{changed: make(chan struct{}, 1)}} }

// complete reports whether every seat that is watched has been read.
func (f *facts) complete() bool {
	for _, s := range f.seats {
		if s.entry == nil {
			return false
		}
	}
	return true
}

// learn takes in a record that was read, and reports whether it changes a fact. A newer record that
// was pushed may have been undone.
func (s *seat) learn(e *leaderelection.RaceEntry, lapsed bool) (matters bool) {
	old := s.entry
	if old != nil {
		switch order := e.Compare(old); {
		case order < 0:
			return false // a stale read
		case order == 0:
			matters = lapsed && !s.lapsed
			s.lapsed = s.lapsed || lapsed
			return matters
		}
	}
	over := e.ElectionNumber
	if !e.Vacant() {
		over = max(over, 1) - 1
	}
	s.over = max(s.over, over)
	matters = lapsed != s.lapsed
	s.entry, s.lapsed = e, lapsed
	if s.told != nil && !sameSession(s.told, e) {
		s.told = nil
	}
	return s.holder(old, e) || matters
}

// hear takes in a pushed record of the session that was read, and reports whether it changes a
// fact. Even if the record is undone, it is true that the session has released its seat, or has let
// go of a shard. That the session's term goes on is not a fact.
func (s *seat) hear(e *leaderelection.RaceEntry) (matters bool) {
	known := s.entry
	if s.told != nil && s.told.Compare(known) > 0 {
		known = s.told
	}
	if e.Compare(known) <= 0 {
		return false
	}
	s.told = e
	if e.Vacant() {
		matters = s.over < e.ElectionNumber
		s.over = max(s.over, e.ElectionNumber)
		s.info, s.broken = nil, nil
		return matters
	}
	matters, s.lapsed = s.lapsed, false
	return s.holder(known, e) || matters
}

// holder takes the seat's holder from e, which is newer than old. It reports whether that is news.
func (s *seat) holder(old, e *leaderelection.RaceEntry) (matters bool) {
	if s.sealing != nil && (e.Vacant() || len(e.ConnectionParams) > 0) {
		s.sealing() // it is sealed, or a member has taken it
	}
	if old != nil && sameSession(old, e) && old.LeaderID == e.LeaderID && bytes.Equal(old.ConnectionParams, e.ConnectionParams) {
		return false
	}
	s.info, s.broken = nil, nil
	if !e.Vacant() && len(e.ConnectionParams) > 0 { // a seat that is being sealed has none
		s.info, s.broken = readSeat(e)
	}
	return true
}

// sameSession reports whether two records belong to one leadership.
func sameSession(a, b *leaderelection.RaceEntry) bool {
	return a.ElectionNumber == b.ElectionNumber && a.Incarnation == b.Incarnation
}

// alive returns the holder of the session, or nil if the session has ended, or seems to have.
func (f *facts) alive(id SessionID) *seatInfo {
	if s := f.seats[id.Seat]; s != nil && s.entry != nil && s.entry.ElectionNumber == id.Number && s.over < id.Number && !s.lapsed {
		return s.info
	}
	return nil
}

// holder returns the session that holds a seat, and its holder, or nil if none is alive.
func (f *facts) holder(seat int) (id SessionID, info *seatInfo) {
	id.Seat = seat
	if s := f.seats[seat]; s != nil && s.entry != nil {
		id.Number = s.entry.ElectionNumber
	}
	return id, f.alive(id)
}

// succeeds reports whether a member seems to have begun the session after a restart, while the term
// of its last session still runs: another session of the MemberID was known before, and has not
// been extended since. (If it is extended, two processes have one MemberID.)
func (f *facts) succeeds(id SessionID) bool {
	s := f.seats[id.Seat]
	for k, other := range f.seats {
		_, info := f.holder(k)
		if k != id.Seat && info != nil && info.Member == s.info.Member && !info.Leaving &&
			other.since.Before(s.since) && !other.renewed.After(s.since) {
			return true
		}
	}
	return false
}

// twins returns the MemberIDs that several processes have.
func (f *facts) twins() []string {
	seen := map[string]int{}
	var twins []string
	for k := range f.seats {
		id, info := f.holder(k)
		if info == nil || info.Leaving || f.succeeds(id) {
			continue
		}
		if seen[info.Member]++; seen[info.Member] == 2 {
			twins = append(twins, info.Member)
		}
	}
	slices.Sort(twins)
	return twins
}

// saw notes when a seat's newest record was known, if it is newer than old.
func (s *seat) saw(old *leaderelection.RaceEntry, now time.Time) {
	e := s.newest()
	switch {
	case e == nil || old != nil && e.Compare(old) <= 0:
	case old == nil || !sameSession(e, old):
		s.since, s.renewed = now, time.Time{}
	default:
		s.renewed = now
	}
}

// newest returns the newest record that was read or pushed.
func (s *seat) newest() *leaderelection.RaceEntry {
	if s.told != nil && (s.entry == nil || s.told.Compare(s.entry) > 0) {
		return s.told
	}
	return s.entry
}

// ended reports whether it is on record that the session has ended. It never becomes
// untrue.
func (f *facts) ended(id SessionID) bool {
	s := f.seats[id.Seat]
	return s != nil && s.over >= id.Number
}

// letGo reports whether it is on record that the session has let go of the shard's token.
func (f *facts) letGo(id SessionID, shard string, token uint64) bool {
	s := f.seats[id.Seat]
	return s != nil && s.info != nil && s.entry.ElectionNumber == id.Number && s.info.LetGo[shard] >= token && token > 0
}

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
		keepWatching(w.c.ctx, watch, cfg.TermLength, func(e leaderelection.RaceEntry) {
			select {
			case news <- &e:
			case <-w.c.ctx.Done():
			}
		}, func(err error) { w.c.post(seatEvent{seat: w.seat, err: err}) })
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
		w.unwatch = line.OnDeath(of, func() { nudge(w.dead) })
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
		nudge(m.changed)
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
	case w.last != nil && w.open == nil && w.moving.now.Load():
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
