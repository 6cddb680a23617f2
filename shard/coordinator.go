package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// coordinator is a member's time as the group's coordinator. Safety does not depend on there being
// one: what it writes rests on facts that are on record and never become untrue (rule 3), and on
// the conditional write. Any number of coordinators may be at work.
//
// One goroutine, run, owns its state.
type coordinator struct {
	m          *Member
	ctx        context.Context
	leads      func() bool
	announce   func(hostPort []string, params []byte) error
	assignment leaderelection.RaceDecider
	facts      *facts
	known      *assignment // the newest read or written; nil: read it
	empty      leaderelection.LeaderToken
	shards     Shards                        // to be divided; empty: not listed yet
	told       leaderelection.ElectionNumber // the version in the coordinator's record
	homeless   int                           // how many shards found no room, as logged
	failing    int                           // how many shards no member should try now, as logged
	twins      []string                      // MemberIDs that several processes have, as logged
	settled    time.Time                     // until then others may come or go, see settle
	unsettled  time.Time                     // since when that is so
	crowded    bool                          // it was logged that the assignment nears MaxAssignment
	events     chan seatEvent
	watchers   sync.WaitGroup
	began      time.Time
	pause      time.Duration
}

// seatEvent reports the state of a seat's record (see watcher), or that it cannot be read.
type seatEvent struct {
	seat   int
	entry  *leaderelection.RaceEntry
	told   bool // entry was pushed, not read
	lapsed bool
	sealed bool // the campaign that was to seal the seat is over
	err    error
	listed *Shards // not about a seat: the shards to divide now
}

// newCoordinator returns a coordinator for as long as ctx lasts. Leads asks its view, and announce
// is its campaign's Announce.
func newCoordinator(m *Member, ctx context.Context, leads func() bool, announce func([]string, []byte) error) *coordinator {
	return &coordinator{m: m, ctx: ctx, leads: leads, announce: announce, shards: m.cfg.Shards, facts: newFacts(), events: make(chan seatEvent), began: time.Now()}
}

func (c *coordinator) run() {
	defer c.watchers.Wait()
	var err error
	if c.assignment, err = c.m.stores.get(c.ctx, patience, assignmentName); err != nil {
		c.m.log(slog.LevelError, "cannot coordinate: the assignment cannot be opened", "err", err)
		return
	}
	_, pushes := c.assignment.(leaderelection.ChangeFeed)
	c.watch(0)
	if c.shards.list != nil {
		c.shards = Shards{}
		go c.list()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for c.ctx.Err() == nil {
		select {
		case <-c.ctx.Done():
			return
		case e := <-c.events:
			if c.learn(e) {
				timer.Reset(0)
			}
			continue
		case <-timer.C:
		}
		if !pushes { // only reads show an operator's pins and drained members
			c.known = nil
		} else if newest := c.m.newestAssignment(); c.known != nil && newest != nil && newest.version > c.known.version {
			c.known = newest
		}
		wait, err := c.round()
		if err != nil {
			c.pause = min(max(2*c.pause, c.m.cfg.TermLength/100), c.m.cfg.TermLength/4)
			wait, c.known = c.pause, nil
			if !errors.Is(err, leaderelection.ErrLostRace) {
				c.m.rounds.Failed(c.m.elapsed(), "", "the assignment stays as it is; trying again", "err", err)
			}
		} else {
			c.m.rounds.Worked(c.m.elapsed(), "")
			c.pause = 0
		}
		timer.Reset(wait)
	}
}

// round reads the assignment if necessary, and replaces it if the facts call for that. It returns
// when to look again at the latest.
func (c *coordinator) round() (time.Duration, error) {
	if c.known == nil {
		e, err := call(c.ctx, c.m.stores, assignmentName, c.m.cfg.TermLength/4, current(c.assignment))
		if err != nil {
			return 0, err
		}
		read, err := readAssignment(e)
		if err != nil {
			return 0, err // the record is left alone
		}
		c.empty = e.Token
		c.known = newest(read, c.m.newestAssignment(), e.Token)
	}
	defer c.hurry()
	if c.known != nil {
		for _, s := range c.known.sessions {
			c.watch(s.Seat)
			c.watch(s.Seat + 1)
		}
	}
	if wait := c.m.cfg.TermLength/2 - time.Since(c.began); wait > 0 && !c.facts.complete() {
		return wait, nil // who has a seat is not known yet
	}
	c.seal()
	if wait := time.Until(c.settled); wait > 0 {
		return wait, nil
	}
	cfg := c.m.cfg
	if cfg.Shards = c.shards; cfg.Shards.Len() == 0 {
		if c.known == nil {
			return c.m.cfg.TermLength, nil // the list wakes it up
		}
		cfg.Shards = c.known.shards
	}
	d := decide(c.known, c.facts, &cfg, c.m.cfg.Clock.Now())
	c.complain(&d)
	if next := d.next; next != nil {
		if next.token == nil {
			next.token = c.empty
		}
		if err := c.write(next); err != nil {
			return 0, err
		}
	}
	c.tell()
	return min(c.m.cfg.TermLength, d.wait), nil
}

// hurry makes watchers read often, if the store does not push: those of the seats whose sessions
// are asked to let go of shards, and while settle waits, those of the seats that may be taken.
func (c *coordinator) hurry() {
	if _, pushes := c.assignment.(leaderelection.ChangeFeed); pushes || c.known == nil {
		return
	}
	asked := map[int]bool{}
	for _, p := range c.known.places {
		if p.releasing {
			asked[c.known.sessions[p.session].Seat] = true
		}
	}
	for k, s := range c.facts.seats {
		s.moving.set(asked[k] || c.settling() && (s.info == nil || s.info.Leaving))
	}
}

// settling reports whether settle waits for members that may come.
func (c *coordinator) settling() bool { return time.Now().Before(c.settled) }

// complain logs, once, what people should look at.
func (c *coordinator) complain(d *decision) {
	if d.homeless != c.homeless {
		c.homeless = d.homeless
		if d.homeless > 0 {
			c.m.log(slog.LevelWarn, "some shards find no member with room", "shards", d.homeless)
		} else {
			c.m.log(slog.LevelInfo, "every shard finds a member with room again")
		}
	}
	if d.failing != c.failing {
		c.failing = d.failing
		if d.failing > 0 {
			c.m.log(slog.LevelWarn, "every member has failed with some shards", "shards", d.failing)
		}
	}
	if twins := c.facts.twins(); !slices.Equal(twins, c.twins) {
		c.twins = twins
		if len(twins) > 0 {
			c.m.log(slog.LevelWarn, "several processes have one MemberID: give each its own", "members", twins)
		}
	}
}

// settle delays the next assignment for a moment. Meanwhile others may come or go as well, or come
// back, as in a deployment, and then one new assignment is enough. It never waits longer than half
// a term.
func (c *coordinator) settle() {
	now := time.Now()
	if now.After(c.settled) {
		c.unsettled = now
	}
	moment := c.m.cfg.TermLength / 15
	c.settled = now.Add(min(moment, max(0, c.m.cfg.TermLength/2-now.Sub(c.unsettled))))
}

// names reports whether the assignment already names a session that has come. Then the session is
// new only to this coordinator.
func (c *coordinator) names(k int, number leaderelection.ElectionNumber, came bool) bool {
	if c.known == nil || !came {
		return false
	}
	_, named := c.known.names(SessionID{k, number})
	return named
}

// newest returns the assignment from which to make the next one: the one that was read, or the one
// that was known before if that is newer. If it is newer, there are two cases. If the read was
// stale, the write, which is conditional on it, will fail. If the store was set back, it gets again
// what it had lost. Either way versions and tokens never go back.
func newest(read, known *assignment, token leaderelection.LeaderToken) *assignment {
	if known == nil || read != nil && read.version >= known.version {
		return read
	}
	restored := known.clone()
	restored.token, restored.restored = token, true
	return restored
}

// write replaces the assignment. The condition is the version that next was made from.
func (c *coordinator) write(next *assignment) error {
	if !c.leads() {
		return errNotCoordinator // another coordinates by now: the write would only be lost
	}
	limit := c.m.cfg.MaxAssignment
	entry, err := next.entry(limit)
	if err != nil {
		return err
	}
	size, shards := len(entry.ConnectionParams), next.shards.Len()
	entry.TermExpiry = c.m.cfg.Clock.Now().UTC()
	token, err := call(c.ctx, c.m.stores, assignmentName, c.m.cfg.TermLength/4, func(ctx context.Context) (leaderelection.LeaderToken, error) {
		return c.assignment.WriteEntry(ctx, entry)
	})
	if errors.Is(err, leaderelection.ErrPermanent) {
		err = fmt.Errorf("the assignment of %d shards takes %d bytes, and was refused; if that is too much for the store, make fewer shards, and set MaxAssignment: %w", shards, size, err)
	}
	if err != nil {
		return err // the next read shows whether it was written
	}
	if size > limit/5*4 && !c.crowded {
		c.crowded = true
		c.m.log(slog.LevelWarn, "the assignment has little room left in its record: make fewer shards, or give them shorter names",
			"bytes", size, "room", limit, "shards", shards, "members", len(next.sessions), "fit", shards*limit/size)
	}
	next.token = token
	c.known = next
	return nil
}

// coordinatorInfo is the content of the ConnectionParams of the coordinator's record.
type coordinatorInfo struct {
	Form    string                        `json:"form"`
	Version leaderelection.ElectionNumber `json:"version"`
}

const coordinatorForm = "coordinator/1"

// tell puts the newest version into the coordinator's record, so that members that poll read a
// small record.
func (c *coordinator) tell() {
	if c.known == nil || c.told == c.known.version {
		return
	}
	text, err := json.Marshal(coordinatorInfo{coordinatorForm, c.known.version})
	if err == nil {
		err = c.announce(c.m.cfg.HostPort, text)
	}
	if err != nil {
		c.m.log(slog.LevelError, "the assignment's version cannot be announced", "err", err)
		return
	}
	c.told = c.known.version
}

// coordinatorVersion returns the version in a coordinator's record.
func coordinatorVersion(e *leaderelection.RaceEntry) (leaderelection.ElectionNumber, bool) {
	var info coordinatorInfo
	if json.Unmarshal(e.ConnectionParams, &info) != nil || info.Form != coordinatorForm {
		return 0, false
	}
	return info.Version, true
}

// watch follows a seat's record, once.
func (c *coordinator) watch(k int) {
	if c.facts.seats[k] != nil {
		return
	}
	s := newSeat()
	_, pushes := c.assignment.(leaderelection.ChangeFeed)
	s.moving.now.Store((c.known == nil || c.settling()) && !pushes)
	c.facts.seats[k] = s
	c.watchers.Add(1)
	go func() {
		defer c.watchers.Done()
		for c.ctx.Err() == nil {
			d, err := c.m.stores.get(c.ctx, c.m.cfg.TermLength/4, seatName(k))
			if err == nil {
				(&watcher{c: c, seat: k, decider: d, moving: &s.moving}).run()
				return
			}
			c.post(seatEvent{seat: k, err: err})
			sleep(c.ctx, c.m.cfg.TermLength/2)
		}
	}()
}

func (c *coordinator) post(e seatEvent) {
	select {
	case c.events <- e:
	case <-c.ctx.Done():
	}
}

// learn takes in an event, and reports whether it may call for another assignment.
func (c *coordinator) learn(e seatEvent) (matters bool) {
	if e.listed != nil {
		matters = !c.shards.equal(*e.listed)
		c.shards = *e.listed
		return matters
	}
	s := c.facts.seats[e.seat]
	if e.sealed {
		s.sealing = nil
		return s.lapsed
	}
	if e.err != nil {
		c.m.log(slog.LevelWarn, "a seat cannot be read", "seat", e.seat, "err", e.err)
		return false
	}
	complete := c.facts.complete()
	was, before, lapsed := s.newest(), s.info, s.lapsed
	if e.told {
		matters = s.hear(e.entry)
	} else {
		matters = s.learn(e.entry, e.lapsed)
	}
	s.saw(was, time.Now())
	came := before == nil && s.info != nil && !s.info.Leaving
	if left := before != nil && (s.info == nil || s.info.Leaving && !before.Leaving); (came || left && !lapsed) && !c.names(e.seat, s.entry.ElectionNumber, came) {
		c.settle()
	}
	if s.broken != nil && matters {
		c.m.log(slog.LevelWarn, "a seat is left out: its record cannot be understood", "seat", e.seat, "err", s.broken)
	}
	if s.entry.ElectionNumber != leaderelection.NoElections && !c.twice(e.seat, s.entry) {
		c.watch(e.seat + 1)
	}
	return matters || !complete && c.facts.complete()
}

// twice reports whether a seat's record, e, is that of the seat before. It should not be, since a
// campaign is for one seat. If it is, Store returns one record for several names, and looking at
// further seats would never end.
func (c *coordinator) twice(k int, e *leaderelection.RaceEntry) bool {
	s := c.facts.seats[k-1]
	if s == nil || s.entry == nil || e.Incarnation == "" || s.entry.Incarnation != e.Incarnation {
		return false
	}
	if c.facts.seats[k+1] == nil {
		c.m.log(slog.LevelError, "two seats have one record; later seats are not read", "err", errOneRecord, "seat", k-1, "other", k)
	}
	return true
}

// seal ends the sessions whose seats are over. It wins those seats by an ordinary campaign, with
// all that it waits for, and releases them at once. Then it is on record that the session has
// ended.
func (c *coordinator) seal() {
	for k, s := range c.facts.seats {
		if !s.lapsed || s.entry.Vacant() || s.sealing != nil {
			continue
		}
		d, err := c.m.stores.get(c.ctx, patience, seatName(k)) // known: the seat was read
		if err != nil {
			continue
		}
		ctx, cancel := context.WithCancel(c.ctx)
		s.sealing = cancel // seat.learn calls it
		cfg := c.m.cfg.election(d)
		cfg.HostPort = nil
		c.m.log(slog.LevelInfo, "seals a seat", "seat", k, "token", s.entry.ElectionNumber)
		c.watchers.Add(1)
		go func() {
			defer c.watchers.Done()
			defer cancel()
			err := cfg.Run(ctx, func(context.Context, *leaderelection.TimeView) error { return nil })
			if err != nil && ctx.Err() == nil {
				c.m.log(slog.LevelWarn, "a seat was not sealed", "seat", k, "err", err)
			}
			// Read the result, whether the watcher sees it or not, and do not try again at once.
			c.lookAt(k, d, func(e *leaderelection.RaceEntry) bool { return !e.Vacant() && c.m.free(e) })
			sleep(c.ctx, c.m.cfg.TermLength/4)
			c.post(seatEvent{seat: k, sealed: true})
		}()
	}
}
