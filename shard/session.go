package shard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// sitting is a member's time on a seat, its session. One goroutine, run, owns its state.
type sitting struct {
	m        *Member
	campaign *leaderelection.Campaign
	tell     func(hostPort []string, params []byte) error // the campaign's Announce
	id       SessionID
	ctx      context.Context // the seat's leadership
	view     *leaderelection.TimeView

	assignment leaderelection.RaceDecider
	look       chan struct{}     // the assignment may have changed
	returned   chan *Owned       // OnOwned has returned
	reads      chan reading      // a read of the assignment
	reading    bool              // one is under way
	again      bool              // another is due
	looked     time.Time         // when the last began
	retryAt    time.Time         // a read has failed: when the next may begin
	pause      time.Duration     // before it
	owned      map[int]*Owned    // by the shard's position in the assignment
	winding    map[*Owned]bool   // those whose callbacks run on without being owned
	letGo      map[string]uint64 // what the seat's record says
	unsaid     map[string]uint64 // what it is to say besides
	floor      map[string]uint64 // the greatest token of each shard that was let go
	background chan struct{}     // a helper goroutine has ended
	helpers    int
}

// lookTerms is after how many terms the assignment is read though nothing has told of
// another: a store that was set back to the same version tells nobody.
const lookTerms = 4

type reading struct {
	a   *assignment
	err error
}

func newSession(m *Member, campaign *leaderelection.Campaign, seat int, ctx context.Context, view *leaderelection.TimeView) *sitting {
	return &sitting{
		m: m, campaign: campaign, tell: campaign.Announce, id: SessionID{seat, view.ElectionNumber()}, ctx: ctx, view: view,
		look: make(chan struct{}, 1), returned: make(chan *Owned), reads: make(chan reading, 1), background: make(chan struct{}),
		owned: map[int]*Owned{}, winding: map[*Owned]bool{}, letGo: map[string]uint64{}, unsaid: map[string]uint64{}, floor: map[string]uint64{},
	}
}

// run takes part until the session ends. It returns when nothing of it runs any more.
func (s *sitting) run() {
	s.m.mu.Lock()
	s.m.session = s.id
	s.m.mu.Unlock()
	s.m.log(slog.LevelInfo, "has a seat", "session", s.id)
	defer s.end()
	var err error
	if s.assignment, err = s.m.stores.get(s.ctx, patience, assignmentName); err != nil {
		s.m.log(slog.LevelError, "no assignment", "err", err)
		return
	}
	s.help(s.follow)
	s.help(s.coordinate)
	s.wake()
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		timer.Reset(s.step())
		select {
		case <-s.ctx.Done():
		case <-s.look:
			s.again = true
		case r := <-s.reads:
			s.read(r)
		case o := <-s.returned:
			s.ended(o)
			s.endedToo()
		case <-timer.C:
		}
	}
}

// help runs f beside the loop, until the session ends.
func (s *sitting) help(f func()) {
	s.helpers++
	go func() {
		defer func() { s.background <- struct{}{} }()
		f()
	}()
}

// end lets everything go, and waits for what still runs. While a member leaves by choice
// its session lasts, and with it the view of a shard whose callback has not returned.
func (s *sitting) end() {
	for _, o := range s.owned { // their ctx has ended with the session's
		if o.running {
			s.winding[o] = true
		} else {
			o.over.Store(true)
			s.m.tellLetGo(o, context.Cause(s.ctx))
		}
		o.cancel(cmp.Or(context.Cause(s.ctx), errSession)) // should that not have reached it yet
	}
	for s.helpers > 0 || len(s.winding) > 0 {
		select {
		case <-s.background:
			s.helpers--
		case o := <-s.returned:
			o.over.Store(true)
			if s.owned[o.index] == o {
				s.m.tellLetGo(o, context.Cause(s.ctx))
			}
			delete(s.winding, o)
		}
	}
	s.m.mu.Lock()
	s.m.session = SessionID{}
	clear(s.m.owned)
	s.m.mu.Unlock()
	s.m.log(slog.LevelInfo, "has left its seat", "session", s.id, "cause", context.Cause(s.ctx))
}

func (s *sitting) wake() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// follow wakes the session up when the assignment may have changed. A store that pushes
// tells of it; elsewhere the coordinator's record, which each member reads anyhow as a
// candidate, has the newest version in it (see coordinate).
func (s *sitting) follow() {
	if _, pushes := s.assignment.(leaderelection.ChangeFeed); !pushes {
		return
	}
	// It is a vacant record, which Watch reads every PollInterval, also if the feed is well.
	// If the feed fails, the coordinator's record tells, and step looks now and then.
	w := leaderelection.WatchConfig{
		Decider: s.assignment, MaxClockSkew: s.m.cfg.MaxClockSkew, SharedClock: s.m.cfg.SharedClock,
		PollInterval: leaderelection.MaxTermLength, Clock: s.m.cfg.Clock,
	}
	for s.ctx.Err() == nil {
		err := w.Watch(s.ctx, func(context.Context, leaderelection.RaceEntry) { s.wake() })
		if s.ctx.Err() == nil { // refused for good: perhaps not for ever
			s.m.log(slog.LevelWarn, "the assignment cannot be followed", "err", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(s.m.cfg.TermLength):
			}
		}
	}
}

// step does what is due, and returns for how long nothing else can be.
func (s *sitting) step() time.Duration {
	now := time.Now()
	next := s.looked.Add(lookTerms * s.m.cfg.TermLength).Sub(now)
	if next <= 0 {
		s.again, next = true, lookTerms*s.m.cfg.TermLength
	}
	if s.again && !s.reading {
		if wait := s.retryAt.Sub(now); wait > 0 {
			next = min(next, wait)
		} else {
			s.reading, s.again, s.looked = true, false, now
			go func() {
				var r reading
				e, err := call(s.ctx, s.m.stores, assignmentName, s.m.cfg.TermLength/4, current(s.assignment))
				if err == nil {
					r.a, err = readAssignment(e)
				}
				r.err = err
				s.reads <- r // there is room: one at a time
			}()
		}
	}
	for i, o := range s.owned {
		if o.drainBy.IsZero() {
			continue
		}
		if wait := o.drainBy.Sub(now); wait > 0 {
			next = min(next, wait)
		} else {
			s.m.log(slog.LevelWarn, "OnOwned has not returned within DrainTimeout; the shard is let go", "shard", o.name)
			s.free(i, o)
		}
	}
	s.say()
	return next
}

// read takes what a read of the assignment has brought.
func (s *sitting) read(r reading) {
	s.reading = false
	if r.err != nil {
		s.pause = min(max(2*s.pause, s.m.cfg.TermLength/100), s.m.cfg.TermLength/4)
		s.retryAt, s.again = time.Now().Add(s.pause), true
		s.m.log(slog.LevelWarn, "the assignment cannot be read", "err", r.err)
		return
	}
	s.pause, s.retryAt = 0, time.Time{}
	known := s.m.newestAssignment()
	switch {
	case r.a == nil || known != nil && (r.a.version < known.version || r.a.version == known.version && r.a.id == known.id):
		return // rule 2: no news
	case known != nil && r.a.version == known.version:
		// Rule 12: one version, and two contents. What is owned may be another's.
		s.m.log(slog.LevelError, "the store was set back: all shards are let go", "version", r.a.version)
		s.dropAll(ErrSetBack)
		return
	}
	s.apply(r.a)
	s.m.learn(r.a)
}

// apply owns and lets go what a newer assignment says.
func (s *sitting) apply(a *assignment) {
	mine, named := a.names(s.id)
	was := s.owned
	s.owned = map[int]*Owned{}
	byName := map[string]*Owned{}
	for _, o := range was {
		byName[o.name] = o
	}
	letGo := map[string]uint64{}
	var fresh []int
	for i, p := range a.places {
		if !named || p.session != mine {
			continue
		}
		name := a.shards.Name(i)
		o := byName[name]
		switch {
		case o != nil && o.token == p.token:
			delete(byName, name)
			s.owned[i], o.index = o, i
			if p.releasing && o.drainBy.IsZero() {
				s.ask(o)
			}
		case p.token <= s.floor[name] || o != nil && p.token < o.token:
			letGo[name] = p.token // it was let go already, or is older than the one that is owned
		case p.releasing: // before it was ever owned here
			s.floor[name] = p.token
			letGo[name] = p.token
		default:
			fresh = append(fresh, i)
		}
	}
	for _, o := range byName { // named by this assignment no more
		s.drop(o, ErrMoved)
	}
	for _, i := range fresh {
		s.own(i, a.shards.Name(i), a.places[i].token)
	}
	s.announce(letGo)
	for i, o := range s.owned {
		if !o.drainBy.IsZero() && !o.running {
			s.free(i, o)
		}
	}
	s.say()
}

// own begins to own a shard.
func (s *sitting) own(i int, name string, token uint64) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	o := &Owned{name: name, token: token, session: s.id, view: s.view, ctx: ctx, index: i, cancel: cancel}
	s.owned[i] = o
	s.m.mu.Lock()
	s.m.owned[name] = o
	s.m.mu.Unlock()
	s.m.log(slog.LevelInfo, "owns", "shard", name, "token", token)
	s.m.tellOwns(o)
	o.begin = func() {
		o.running = true
		go func() {
			defer func() { s.returned <- o }()
			s.m.cfg.OnOwned(ctx, o)
		}()
	}
	for w := range s.winding {
		if w.name == name {
			return // never two callbacks of one shard: ended begins it
		}
	}
	o.start()
}

// ask begins to let a shard go: its callback is told, and has DrainTimeout.
func (s *sitting) ask(o *Owned) {
	o.drainBy = time.Now().Add(s.m.cfg.DrainTimeout)
	o.asked = s.m.cfg.Clock.Now()
	o.cancel(ErrMoved)
}

// drop ends a shard's view here and now, and its ctx.
func (s *sitting) drop(o *Owned, cause error) {
	o.over.Store(true)
	o.cancel(cause)
	if o.running {
		s.winding[o] = true
	}
	s.floor[o.name] = max(s.floor[o.name], o.token)
	s.m.mu.Lock()
	delete(s.m.owned, o.name)
	s.m.mu.Unlock()
	s.m.log(slog.LevelInfo, "has let go", "shard", o.name, "token", o.token)
	s.m.tellLetGo(o, cause)
}

// dropAll ends every view and the session.
func (s *sitting) dropAll(cause error) {
	for i, o := range s.owned {
		delete(s.owned, i)
		s.drop(o, cause)
	}
	s.m.forget()
	go func() { _ = s.campaign.Resign(s.ctx) }()
}

// coordinate campaigns for the coordinator's place for as long as the session lasts.
func (s *sitting) coordinate() {
	d, err := s.m.stores.get(s.ctx, patience, coordinatorName)
	if err != nil {
		s.m.log(slog.LevelError, "no coordinator", "err", err)
		return
	}
	cfg := s.m.cfg.election(d)
	campaigns := make(chan *leaderelection.Campaign, 1)
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		c := <-campaigns
		campaigns <- c
		s.m.log(slog.LevelInfo, "coordinates", "election", view.ElectionNumber())
		newCoordinator(s.m, ctx, view.ValueInFuture, c.Announce).run()
	}
	cfg.Trace = &leaderelection.Trace{News: func(e leaderelection.RaceEntry) {
		if v, ok := coordinatorVersion(&e); ok {
			if known := s.m.newestAssignment(); known == nil || v > known.version {
				s.wake()
			}
		}
	}}
	for s.ctx.Err() == nil {
		c, err := cfg.Start(s.ctx)
		if err == nil {
			campaigns <- c
			err = c.Wait()
			<-campaigns
		}
		if s.ctx.Err() == nil {
			s.m.log(slog.LevelWarn, "cannot take part in the coordinator's election", "err", err)
			select {
			case <-s.ctx.Done():
			case <-time.After(s.m.cfg.TermLength):
			}
		}
	}
}

func (m *Member) newestAssignment() *assignment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

func (m *Member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = nil
}

// learn keeps a newer assignment.
func (m *Member) learn(a *assignment) {
	m.mu.Lock()
	m.newest = a
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default: // it is about to be told anyhow
	}
	m.tellAssignment(a)
	missing, unknown, going := a.differs(m.cfg.Shards)
	switch disagrees := [2]string{missing, unknown}; {
	case disagrees == [2]string{}:
		m.disagrees = disagrees
	case disagrees != m.disagrees && (missing != "" || !going):
		m.disagrees = disagrees
		m.log(slog.LevelWarn, "the group's shards are not this member's; the coordinator's hold",
			"shards", a.shards.Len(), "own", m.cfg.Shards.Len(), "missing", missing, "unknown", unknown)
	}
}

var errNotCoordinator = errors.New("shard: not the coordinator any more")
