package sim

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// Decider puts the faults of a Link on top of a Store's client, and shows the
// recorder all that passes.
type Decider struct {
	inner le.RaceDecider
	actor *actor
	rec   *recorder
	tells bool // a lost race comes with the record that won it
	lags  bool // every second read comes from a replica
}

// Pushed is a Decider with the ChangeFeed of the one below it.
type Pushed struct{ *Decider }

// op is one call as the recorder sees it.
type op struct {
	actor *actor
	write *le.RaceEntry // nil for a read
	at    time.Duration // true time of the call
	wall  time.Time     // the caller's clock then
	mono  time.Duration
	ctx   context.Context

	readAt   reading           // by the caller's clock: when its last answered read began
	greatest le.ElectionNumber // that it had been told of
	newest   *le.RaceEntry     // the same
	sure     bool              // that this has happened: it was read or written, or is another's
	landed   bool              // it has changed the record
	worked   bool              // some call of the caller's had, before
	wrote    bool              // some write had
}

// ReadCurrent reads the record, or what the Link makes of it.
func (d *Decider) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	f := d.actor.link.draw(false)
	o := d.rec.calling(ctx, d.actor, nil)
	e, err := exchange(ctx, d, f, func(ctx context.Context) (*le.RaceEntry, error) {
		if old := d.rec.earlier(f.stale); old != nil {
			d.rec.count("fault: a stale read")
			return old, nil
		}
		if f.refuse && o.worked {
			return nil, errRefused
		}
		if d.lags {
			if e := d.rec.lagging(d.actor); e != nil {
				return e, nil
			}
		}
		return d.inner.ReadCurrent(ctx)
	})
	d.rec.answered(o, e, nil, err)
	return e, err
}

// WriteEntry writes the record, or what the Link lets of it.
func (d *Decider) WriteEntry(ctx context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	f := d.actor.link.draw(true)
	entry = entry.Clone()
	o := d.rec.calling(ctx, d.actor, entry)
	token, err := exchange(ctx, d, f, func(ctx context.Context) (le.LeaderToken, error) {
		if f.refuse && o.wrote {
			return nil, errRefused
		}
		if d.undone(f, entry) {
			return nil, errUndone
		}
		token, err := d.inner.WriteEntry(context.WithValue(ctx, opKey{}, o), entry)
		if d.tells && errors.Is(err, le.ErrLostRace) {
			if e, readErr := d.inner.ReadCurrent(ctx); readErr == nil {
				err = &le.LostRaceError{Place: "sim", Current: e, Err: err}
			}
		}
		return token, err
	})
	d.rec.answered(o, nil, token, err)
	return token, err
}

// errUndone is what the writer of something that was not committed is told, if anything.
var errUndone = errors.New("sim: the server lost its majority")

// undone lets the feeds tell of a write before it is committed, and reports whether it
// never is.
func (d *Decider) undone(f fault, entry *le.RaceEntry) bool {
	store, ok := d.rec.store.(*Memory)
	if !ok || f.foretold == 0 {
		return false
	}
	undo := store.Foretell(entry)
	if undo == nil {
		return false
	}
	d.rec.foretold(d.actor, entry)
	d.rec.note(d.actor.name, "not committed yet, but feeds tell of %v (undone: %v)", d.rec.short(entry), f.undone)
	d.actor.link.rest(f.foretold)
	if f.undone {
		undo()
	}
	return f.undone
}

// errRefused is what no retry could cure, though it will pass.
var errRefused = fmt.Errorf("sim: refused: %w", le.ErrPermanent)

// exchange is a request and its answer. The request travels on its own: a caller
// that gives up, is frozen or crashes does not stop it.
func exchange[T any](ctx context.Context, d *Decider, f fault, do func(context.Context) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	var zero T
	d.ambush(f, 1)
	d.actor.clock.Gate()
	if d.actor.dead.Load() {
		time.Sleep(d.actor.link.calm + time.Millisecond)
		return zero, errDead
	}
	replies := make(chan reply, 2)
	go func() {
		if f.early {
			replies <- reply{err: d.actor.link.lost(errLost)}
		}
		d.actor.link.rest(f.request)
		lost := f.loseRequest
		var r reply
		if !lost {
			on, cancel := d.onwards(ctx)
			defer cancel()
			r.value, r.err = do(on)
			if f.twice {
				again, err := do(on)
				r = reply{again, err}
			}
			lost = f.loseAnswer || f.silent && errors.Is(r.err, errUndone)
		}
		d.suffered(f, r.err, ctx.Err() != nil)
		d.ambush(f, 2)
		d.actor.link.rest(f.answer)
		switch {
		case !lost:
			replies <- r
		case !f.silent:
			replies <- reply{err: d.actor.link.lost(errLost)}
		}
	}()
	d.actor.link.rest(f.hang)
	var r reply
	select {
	case r = <-replies: // also when ctx has ended by now: else it would be left to chance
	default:
		select {
		case r = <-replies:
		case <-ctx.Done():
			r.err = context.Cause(ctx)
		}
	}
	d.ambush(f, 3)
	d.actor.clock.Gate()
	if d.actor.dead.Load() {
		return zero, errDead
	}
	return r.value, r.err
}

// onwards is the ctx of a request that has arrived: it goes on without its caller. Only a
// client that has a wire below it gives up with its caller, or after a while by itself:
// there it is the wire's to go on.
func (d *Decider) onwards(ctx context.Context) (context.Context, context.CancelFunc) {
	on := context.WithoutCancel(ctx)
	if !d.rec.wired() {
		return on, func() {}
	}
	if ctx.Err() == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(on, d.rec.term/4)
}

// suffered counts what has gone wrong with a call that has reached the store, or
// never will; err is the store's answer.
func (d *Decider) suffered(f fault, err error, abandoned bool) {
	for what, is := range map[string]bool{
		"a request was lost":             f.loseRequest,
		"an answer was lost":             f.loseAnswer && err == nil,
		"a call was lost without a word": f.silent,
		"a request arrived after its caller was told of its failure": f.early && err == nil,
		"a request arrived after its caller had given it up":         abandoned && !f.loseRequest && err == nil,
		"a call hung past its timeout":                               f.hang > d.rec.term/4,
		"a call was refused as if for good":                          errors.Is(err, errRefused),
		"a write was undone that feeds had told of":                  errors.Is(err, errUndone),
		"a dead process's request arrived":                           d.actor.dead.Load() && !f.loseRequest && err == nil,
	} {
		if is {
			d.rec.count("fault: " + what)
		}
	}
}

// ambush lets something happen to the caller, if this is the place.
func (d *Decider) ambush(f fault, place int) {
	if p := d.actor.proc; p != nil && f.ambush == place {
		p.host.w.do(func() { p.host.ambushed(p) })
	}
}

// errFeed is what a feed that was cut fails with.
var errFeed = errors.New("sim: the feed failed")

// Changes follows the record, as well as the Link lets it.
func (p Pushed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	d, link := p.Decider, p.actor.link
	return func(yield func(*le.RaceEntry, error) bool) {
		d.actor.clock.Gate()
		d.rec.opens(d.actor)
		inner, cut := context.WithCancel(ctx)
		defer cut()
		s := &session{cut: cut}
		link.open(s)
		defer link.close(s)
		for e, err := range d.inner.(le.ChangeFeed).Changes(inner) {
			n := link.drawNews()
			d.rec.hindered(n)
			if err == nil && d.deaf(e) {
				continue
			}
			if d.actor.dead.Load() || err != nil || n.fail {
				link.rest(n.delay)
				break
			}
			link.rest(n.hang)
			if n.silent {
				<-inner.Done()
			}
			if !sleep(inner, n.delay) {
				break
			}
			d.actor.clock.Gate()
			old := d.rec.earlier(n.old)
			if ctx.Err() == nil { // else nobody listens any more
				d.rec.pushed(d.actor, old, e)
			}
			if !deliver(e, old, n.repeat, yield) {
				return
			}
		}
		d.actor.clock.Gate()
		if ctx.Err() == nil {
			yield(nil, link.lost(errFeed))
		}
	}
}

// deaf reports whether the feed does not hear of e, which is not committed: it is one of
// a server that has not been told.
func (d *Decider) deaf(e *le.RaceEntry) bool {
	v, _ := e.Token.(version)
	if !v.rumour {
		return false
	}
	if d.actor.link.Seed()%3 == 0 {
		return true
	}
	d.rec.count("fault: a feed told of what was not committed")
	return false
}

// deliver hands on a record, an old one before it and itself once more after it,
// and reports whether more is wanted.
func deliver(e, old *le.RaceEntry, repeat bool, yield func(*le.RaceEntry, error) bool) bool {
	again := e.Clone()
	return (old == nil || yield(old, nil)) && yield(e, nil) && (!repeat || yield(again, nil))
}

// sleep returns true after d of true time, or false as soon as ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool { return clocks.System().SleepFor(ctx, d) }

// Memory is a Store in memory: a conditional write that is atomic, and nothing that
// goes wrong. What goes wrong is put on top, by Link; but for what no link can do, see
// Foretell and SetBack.
type Memory struct {
	unit time.Duration // of the time that it stamps records with; 0: it does not say

	mu      sync.Mutex
	current *le.RaceEntry
	version version
	issued  uint64        // versions
	rumour  *le.RaceEntry // what feeds tell of in place of current; nil: nothing
	changed chan struct{} // closed by the next write, or rumour
}

// version is the Memory's token.
type version struct {
	n      uint64
	stamp  time.Time
	rumour bool // a feed told of it before it was committed
}

// CommitTS is the true time of the write, as far as the Memory's unit goes.
func (v version) CommitTS() time.Time { return v.stamp }

var (
	_ Store          = (*Memory)(nil)
	_ le.RaceDecider = (*Memory)(nil)
	_ le.ChangeFeed  = (*Memory)(nil)
)

// NewMemory returns an empty election, whose records are stamped with true time in
// multiples of unit; with none where that is zero.
func NewMemory(unit time.Duration) *Memory {
	return &Memory{unit: unit, current: &le.RaceEntry{}, changed: make(chan struct{})}
}

// Decider returns the record itself: all machines see it alike.
func (s *Memory) Decider(way *Way) le.RaceDecider { return way.Over(s) }

// Current returns the record.
func (s *Memory) Current() (*le.RaceEntry, error) {
	e, _ := s.read()
	return e, nil
}

// read returns the record, and what is closed when there is a newer one.
func (s *Memory) read() (*le.RaceEntry, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.current.Clone()
	e.Token = s.version
	return e, s.changed
}

// ReadCurrent returns the record.
func (s *Memory) ReadCurrent(context.Context) (*le.RaceEntry, error) { return s.Current() }

// WriteEntry replaces the record if it is still the version that entry names.
func (s *Memory) WriteEntry(_ context.Context, entry *le.RaceEntry) (le.LeaderToken, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, _ := entry.Token.(version); v.n != s.version.n {
		return nil, fmt.Errorf("sim: version %d, now %d: %w", v.n, s.version.n, le.ErrLostRace)
	}
	return s.put(entry), nil
}

// Foretell makes the feeds tell of a write that would happen now, as a store does that
// pushes what it has not committed, and returns what undoes that: nil when the write
// would be refused, or another is on its way. The next write that happens ends it.
func (s *Memory) Foretell(entry *le.RaceEntry) (undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, _ := entry.Token.(version); v.n != s.version.n || s.rumour != nil {
		return nil
	}
	told := entry.Clone()
	v := s.next()
	v.rumour = true
	told.Token = v
	s.tell(told)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rumour == told {
			s.tell(nil)
		}
	}
}

// tell makes the feeds look again, for a rumour where there is one.
func (s *Memory) tell(rumour *le.RaceEntry) {
	s.rumour = rumour
	close(s.changed)
	s.changed = make(chan struct{})
}

// next is a version that never was.
func (s *Memory) next() version {
	s.issued++
	v := version{n: s.issued}
	if s.unit > 0 {
		v.stamp = time.Now().Round(0).UTC().Truncate(s.unit)
	}
	return v
}

// SetBack puts an earlier record in the place of the present one, as when a store
// is restored from a backup. It is a new version: what was read before can not be
// written over it.
func (s *Memory) SetBack(entry *le.RaceEntry) le.LeaderToken {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.put(entry)
	if entry.ElectionNumber == le.NoElections && !entry.Emptied { // there is none: nothing says since when
		v.stamp = time.Time{}
		s.version = v
	}
	return v
}

func (s *Memory) put(entry *le.RaceEntry) version {
	v := s.next()
	if r := s.rumour; r != nil && sameWrite(r, entry) {
		v.n = r.Token.(version).n // what was told of is committed now
	}
	s.version = v
	s.current = entry.Clone()
	s.current.Token = nil
	s.tell(nil)
	return s.version
}

// told returns what a feed tells of, and what is closed when that is out of date.
func (s *Memory) told() (*le.RaceEntry, <-chan struct{}) {
	e, changed := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rumour != nil && changed == s.changed {
		return s.rumour.Clone(), changed
	}
	return e, changed
}

// Changes follows the record.
func (s *Memory) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for {
			e, changed := s.told()
			if ctx.Err() != nil || !yield(e, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}
