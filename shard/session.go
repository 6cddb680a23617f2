package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
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

	news    follower          // of the assignment
	reads   chan reading      // its results
	emptied chan struct{}     // the last request has left a shard that is to be let go
	owned   map[int]*Owned    // by the shard's position in the assignment
	letGo   map[string]uint64 // the shards let go in the seat's record
	unsaid  map[string]uint64 // further ones that are not on record yet
	failed  map[string]string // of both: the errors of shards on which OnOwned failed
	said    []byte            // the ConnectionParams last written to the seat's record
	leaving bool              // nothing new is owned
	live    context.Context   // lasts until the session has ended; ctx ends when it should end
	die     context.CancelFunc
	floor   map[string]uint64 // the greatest token of each shard that was let go
	helpers sync.WaitGroup
}

// lookTerms is after how many terms the assignment is read although no news has come: a store that
// was set back to the same version brings no news.
const lookTerms = 4

type reading struct {
	a   *assignment
	err error
}

func newSession(m *Member, campaign *leaderelection.Campaign, seat int, ctx context.Context, view *leaderelection.TimeView) *sitting {
	said, _ := json.Marshal(m.info()) // of texts and numbers: it never fails
	live, die := context.WithCancel(context.WithoutCancel(ctx))
	return &sitting{
		live: live, die: die, said: said,
		m: m, campaign: campaign, tell: campaign.Announce, id: SessionID{seat, view.ElectionNumber()}, ctx: ctx, view: view,
		news:    follower{stores: m.stores, unit: m.cfg.TermLength, within: m.cfg.TermLength / 4, calm: lookTerms * m.cfg.TermLength, look: make(chan struct{}, 1)},
		emptied: make(chan struct{}, 1), reads: make(chan reading),
		owned: map[int]*Owned{}, letGo: map[string]uint64{}, unsaid: map[string]uint64{}, failed: map[string]string{}, floor: map[string]uint64{},
	}
}

// run takes part until the session ends. If the member leaves by choice, run returns when every
// OnOwned has returned. Otherwise it returns when the view has ended, and the member waits for the
// OnOwned that run on.
func (s *sitting) run() {
	s.m.mu.Lock()
	s.m.session = s.id
	s.m.mu.Unlock()
	s.m.sits.Worked(s.m.elapsed(), "")
	s.m.log(slog.LevelInfo, "has a seat", "session", s.id)
	defer s.end()
	var err error
	if s.news.assignment, err = s.m.stores.get(s.ctx, patience, assignmentName); err != nil {
		s.m.log(slog.LevelError, "leaving the seat: the assignment cannot be opened", "err", err)
		return
	}
	s.help(s.follow)
	s.help(s.coordinate)
	timer := time.NewTimer(math.MaxInt64)
	defer timer.Stop()
	asked := s.ctx.Done()
	for !s.left() {
		timer.Reset(s.step())
		select {
		case <-asked:
			asked = nil
			s.leave()
		case r := <-s.reads:
			s.read(r)
		case o := <-s.m.returned:
			s.ended(o)
			s.endedToo()
		case <-s.emptied:
			s.settleAll()
		case <-timer.C:
		}
	}
}

// leave lets go of everything, each shard when its OnOwned has returned, and takes nothing new.
// While a member leaves by choice, its session lasts, and so does the view of a shard whose OnOwned
// has not returned.
func (s *sitting) leave() {
	s.leaving = true
	for i, o := range s.owned { // their ctx has ended with the session's
		if o.drainBy.IsZero() {
			s.ask(o, s.cause())
		}
		s.settle(i, o)
	}
}

// settleAll frees the shards on which nothing works any more.
func (s *sitting) settleAll() {
	for i, o := range s.owned {
		s.settle(i, o)
	}
}

// left reports whether the session is over.
func (s *sitting) left() bool {
	return s.leaving && (!s.view.ValueInFuture() || len(s.m.calls) == 0 && len(s.owned) == 0)
}

// cause returns why a shard is let go.
func (s *sitting) cause() error {
	if s.leaving {
		return cmp.Or(context.Cause(s.ctx), errSession)
	}
	return ErrMoved
}

// help runs f in a goroutine, until the session ends.
func (s *sitting) help(f func()) {
	s.helpers.Add(1)
	go func() {
		defer s.helpers.Done()
		f()
	}()
}

// end lets everything go, and waits for the helpers. An OnOwned that still runs must not act on its
// shard any more.
func (s *sitting) end() {
	s.die()
	s.m.mu.Lock()
	s.m.session = SessionID{}
	s.m.mu.Unlock()
	cause := cmp.Or(context.Cause(s.ctx), errSession)
	s.dropAll(cause)
	s.helpers.Wait()
	if len(s.m.calls) > 0 {
		s.m.log(slog.LevelWarn, "the session has ended, and OnOwned has not returned", "shards", slices.Sorted(maps.Keys(s.m.calls)))
	}
	s.m.log(slog.LevelInfo, "has left its seat", "session", s.id, "cause", cause)
}

// follow has the assignment read when it may have changed. A store that pushes it says so. On other
// stores the coordinator's record has the newest version, and each member reads it as a candidate
// (see coordinate).
func (s *sitting) follow() {
	if _, pushes := s.news.assignment.(leaderelection.ChangeFeed); pushes {
		// The assignment is a vacant record, which Watch reads every PollInterval even if the feed
		// works: so that is set long. If the feed fails, the coordinator's record brings news.
		w := leaderelection.WatchConfig{
			Decider: s.news.assignment, MaxClockSkew: s.m.cfg.MaxClockSkew, ClockPolicy: s.m.cfg.ClockPolicy,
			PollInterval: leaderelection.MaxTermLength, Clock: s.m.cfg.Clock,
		}
		s.help(func() {
			keepWatching(s.live, w, s.m.cfg.TermLength, s.news.hear, func(err error) {
				s.m.log(slog.LevelWarn, "the assignment cannot be followed", "err", err)
			})
		})
	} else {
		s.news.moving = hurried(s.m.cfg.TermLength)
	}
	s.news.run(s.live, func(a *assignment, err error) {
		select {
		case s.reads <- reading{a, err}:
		case <-s.live.Done():
		}
	})
}

// step does what is due, and returns for how long nothing else can be.
func (s *sitting) step() time.Duration {
	now, next := time.Now(), time.Duration(math.MaxInt64)
	for i, o := range s.owned {
		switch {
		case !o.drainBy.IsZero():
			if wait := o.drainBy.Sub(now); wait > 0 {
				next = min(next, wait)
			} else {
				late := "OnOwned has"
				if !o.running {
					late = "requests have"
				}
				s.m.log(slog.LevelWarn, late+" not returned within DrainTimeout; the shard is let go", "shard", o.name)
				s.free(i, o)
			}
		case o.begin != nil: // an earlier OnOwned of this shard runs on
			if wait := o.beginBy.Sub(now); wait > 0 {
				next = min(next, wait)
			} else {
				s.fail(i, o, errors.New("the OnOwned of its last time here has not returned"))
			}
		}
	}
	s.say()
	if s.leaving { // the view may end before the callbacks return
		next = min(next, max(s.view.Clock().Until(s.view.Get()), 0)+time.Millisecond)
	}
	return next
}

// read takes in the result of a read of the assignment.
func (s *sitting) read(r reading) {
	if r.err != nil {
		s.m.reads.Failed(s.m.elapsed(), "", "the assignment cannot be read", "err", r.err)
		return
	}
	s.m.reads.Worked(s.m.elapsed(), "")
	switch known := s.m.newestAssignment(); {
	case r.a == nil || known != nil && (r.a.version < known.version || r.a.version == known.version && r.a.id == known.id):
		return // rule 2: no news
	case known != nil && r.a.version == known.version:
		// Rule 12: one version has two contents. Another session may own the shards of this session.
		s.m.log(slog.LevelError, "the store was set back: all shards are let go", "version", r.a.version)
		s.dropAll(ErrSetBack)
		s.m.forget()
		go func() { _ = s.campaign.Resign(s.ctx) }()
		return
	}
	s.apply(r.a)
	s.m.learn(r.a)
}

// hurried returns how often a group's records are read while shards move, if the store does not
// push: each move takes several reads, one after the other.
func hurried(term time.Duration) time.Duration { return max(term/16, 10*time.Millisecond) }

// apply takes and lets go of shards as a newer assignment says.
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
				s.ask(o, s.cause())
			}
		case p.token <= s.floor[name] || o != nil && p.token < o.token:
			letGo[name] = p.token // this token was let go already, or is older than the owned one
		case p.releasing || s.leaving: // before it was ever owned here
			s.floor[name] = p.token
			letGo[name] = p.token
		default:
			fresh = append(fresh, i)
		}
	}
	for _, o := range byName { // no longer in this assignment
		s.drop(o, ErrMoved)
	}
	for _, i := range fresh {
		s.own(i, a)
	}
	s.announce(letGo)
	s.settleAll()
	s.say()
}

// own begins to own a shard.
func (s *sitting) own(i int, a *assignment) {
	name, token := a.shards.Name(i), a.places[i].token
	ctx, cancel := context.WithCancelCause(s.ctx)
	o := &Owned{name: name, of: a.shards.numbered, token: token, session: s.id, view: s.view, index: i, cancel: cancel, emptied: func() { nudge(s.emptied) }}
	o.ctx = WithOwned(ctx, o)
	s.owned[i] = o
	s.m.mu.Lock()
	s.m.owned[name] = o
	s.m.mu.Unlock()
	s.m.log(slog.LevelInfo, "owns", "shard", name, "token", token)
	tell(s.m, s.m.cfg.ShardTrace.Owns, Owns{o, s.m.cfg.Clock.Now()})
	o.begin = func() {
		o.running = true
		s.m.calls[name] = o
		go func() {
			o.err = errGoexit
			defer func() { s.m.returned <- o }()
			o.err = s.m.cfg.OnOwned(o.ctx, o)
		}()
	}
	if s.m.calls[name] != nil {
		o.beginBy = time.Now().Add(s.m.cfg.DrainTimeout)
		return // never two callbacks of one shard: ended begins it
	}
	o.start()
}

// errGoexit is the error of an OnOwned that has ended its goroutine.
var errGoexit = errors.New("OnOwned ended its goroutine instead of returning")

// ask begins to let a shard go: it cancels the shard's ctx, and its callback and the requests that were
// let in have DrainTimeout to return.
func (s *sitting) ask(o *Owned, cause error) {
	o.shut()
	o.drainBy = time.Now().Add(s.m.cfg.DrainTimeout)
	o.asked = s.m.cfg.Clock.Now()
	o.cancel(cause)
}

// drop ends a shard's view and ctx at once.
func (s *sitting) drop(o *Owned, cause error) {
	o.over.Store(true)
	o.cancel(cause)
	o.shut()
	s.floor[o.name] = max(s.floor[o.name], o.token)
	s.m.mu.Lock()
	if s.m.owned[o.name] == o {
		delete(s.m.owned, o.name)
	}
	s.m.mu.Unlock()
	e := LetGo{Owned: o, Cause: cause, Asked: o.asked, Time: s.m.cfg.Clock.Now()}
	if e.Asked.IsZero() {
		e.Asked = e.Time
	}
	s.m.log(slog.LevelInfo, "has let go", "shard", o.name, "token", o.token, "cause", cause, "took", e.Time.Sub(e.Asked))
	tell(s.m, s.m.cfg.ShardTrace.LetGo, e)
}

// dropAll ends every view.
func (s *sitting) dropAll(cause error) {
	for i, o := range s.owned {
		delete(s.owned, i)
		s.drop(o, cause)
	}
}

// coordinate campaigns for the coordinator's place for as long as the session lasts.
func (s *sitting) coordinate() {
	d, err := s.m.stores.get(s.ctx, patience, coordinatorName)
	if err != nil {
		s.m.log(slog.LevelError, "this member cannot coordinate: the coordinator's record cannot be opened", "err", err)
		return
	}
	cfg := s.m.cfg.election(d)
	campaigns := make(chan *leaderelection.Campaign, 1)
	cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
		c := <-campaigns
		campaigns <- c
		s.m.log(slog.LevelInfo, "coordinates", "token", view.ElectionNumber())
		newCoordinator(s.m, ctx, view.ValueInFuture, c.Announce).run()
	}
	cfg.Trace = &leaderelection.Trace{News: s.news.hearCoordinator}
	for s.ctx.Err() == nil {
		c, err := cfg.Start(s.ctx)
		if err == nil {
			campaigns <- c
			err = c.Wait()
			<-campaigns
		}
		if s.ctx.Err() == nil {
			s.m.log(slog.LevelWarn, "cannot campaign for coordinator; trying again", "err", err)
			sleep(s.ctx, s.m.cfg.TermLength)
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
	tell(m, m.cfg.ShardTrace.Assignment, a.public())
	if m.cfg.Shards.list != nil {
		return
	}
	missing, unknown, going := a.differs(m.cfg.Shards)
	switch disagrees := [2]string{missing, unknown}; {
	case disagrees == [2]string{}:
		m.disagrees = disagrees
	case disagrees != m.disagrees && (missing != "" || !going):
		m.disagrees = disagrees
		m.log(slog.LevelWarn, "the group's shards are not this member's: the coordinator's apply",
			"shards", a.shards.Len(), "own", m.cfg.Shards.Len(), "missing", missing, "unknown", unknown)
	}
}

var errNotCoordinator = errors.New("shard: not the coordinator any more")
