package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// coordinator is a member's time as the group's coordinator. It proves nothing by being
// it: what it writes rests on facts that are on record and never become untrue (rule 3),
// and on the conditional write. Any number of them may be at work.
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
	told       leaderelection.ElectionNumber // in the coordinator's record
	homeless   int                           // how many shards found no room, as was logged
	crowded    bool                          // that the assignment nears MaxAssignment was logged
	events     chan seatEvent
	watchers   sync.WaitGroup
	began      time.Time
	pause      time.Duration
}

// seatEvent is what a seat's record was found to say (see watcher), or that it cannot be
// read.
type seatEvent struct {
	seat   int
	entry  *leaderelection.RaceEntry
	told   bool // it was not read
	lapsed bool
	sealed bool // the campaign that was to seal it is over
	err    error
}

// newCoordinator returns a coordinator for as long as ctx lasts. Leads is its view, and
// announce its campaign's.
func newCoordinator(m *Member, ctx context.Context, leads func() bool, announce func([]string, []byte) error) *coordinator {
	return &coordinator{m: m, ctx: ctx, leads: leads, announce: announce, facts: newFacts(), events: make(chan seatEvent), began: time.Now()}
}

func (c *coordinator) run() {
	defer c.watchers.Wait()
	var err error
	if c.assignment, err = c.m.stores.get(c.ctx, patience, assignmentName); err != nil {
		c.m.log(slog.LevelError, "cannot coordinate", "err", err)
		return
	}
	_, pushes := c.assignment.(leaderelection.ChangeFeed)
	c.watch(0)
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
		if !pushes { // an operator's pins and cordons are seen by reading only
			c.known = nil
		} else if newest := c.m.newestAssignment(); c.known != nil && newest != nil && newest.version > c.known.version {
			c.known = newest
		}
		wait, err := c.round()
		if err != nil {
			c.pause = min(max(2*c.pause, c.m.cfg.TermLength/100), c.m.cfg.TermLength/4)
			wait, c.known = c.pause, nil
			if !errors.Is(err, leaderelection.ErrLostRace) {
				c.m.log(slog.LevelWarn, "the assignment stays as it is", "err", err)
			}
		} else {
			c.pause = 0
		}
		timer.Reset(wait)
	}
}

// round reads the assignment if need be, and replaces it if the facts call for that. It
// returns when to look again at the latest.
func (c *coordinator) round() (time.Duration, error) {
	if c.known == nil {
		e, err := call(c.ctx, c.m.stores, assignmentName, c.m.cfg.TermLength/4, current(c.assignment))
		if err != nil {
			return 0, err
		}
		read, err := readAssignment(e)
		if err != nil {
			return 0, err // left alone
		}
		c.empty = e.Token
		c.known = newest(read, c.m.newestAssignment(), e.Token)
	}
	for _, s := range c.sessions() {
		c.watch(s.Seat)
		c.watch(s.Seat + 1)
	}
	if wait := c.m.cfg.TermLength/2 - time.Since(c.began); wait > 0 && !c.facts.complete() {
		return wait, nil // who has a seat is not known yet
	}
	next, homeless := nextAssignment(c.known, c.facts, &c.m.cfg)
	if homeless != c.homeless {
		c.homeless = homeless
		if homeless > 0 {
			c.m.log(slog.LevelWarn, "shards that find no member with room", "shards", homeless)
		} else {
			c.m.log(slog.LevelInfo, "every shard finds a member with room again")
		}
	}
	c.seal()
	if next != nil {
		if next.token == nil {
			next.token = c.empty
		}
		if err := c.write(next); err != nil {
			return 0, err
		}
	}
	c.tell()
	return c.m.cfg.TermLength, nil
}

func (c *coordinator) sessions() []session {
	if c.known == nil {
		return nil
	}
	return c.known.sessions
}

// newest is what the next assignment is made from: what was read, or what was known
// before if that is newer. Then either the read was stale, and the write, which is
// conditional on it, will fail; or the store was set back, and gets again what it had lost.
// Either way versions and tokens never go back.
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
		return errNotCoordinator // another is, by now: it only saves a write that would be lost
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
		return err // what became of it, the next read shows
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

// coordinatorInfo is what the coordinator's record says in its ConnectionParams.
type coordinatorInfo struct {
	Form    string                        `json:"form"`
	Version leaderelection.ElectionNumber `json:"version"`
}

const coordinatorForm = "coordinator/1"

// tell has the coordinator's record name the newest version, so that members that poll
// read a small record.
func (c *coordinator) tell() {
	if c.known == nil || c.told == c.known.version {
		return
	}
	text, err := json.Marshal(coordinatorInfo{coordinatorForm, c.known.version})
	if err == nil {
		err = c.announce(c.m.cfg.HostPort, text)
	}
	if err != nil {
		c.m.log(slog.LevelError, "the assignment's version cannot be told", "err", err)
		return
	}
	c.told = c.known.version
}

// coordinatorVersion is the version that a coordinator's record names.
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
	c.facts.seats[k] = &seat{}
	c.watchers.Add(1)
	go func() {
		defer c.watchers.Done()
		for c.ctx.Err() == nil {
			d, err := c.m.stores.get(c.ctx, c.m.cfg.TermLength/4, seatName(k))
			if err == nil {
				(&watcher{c: c, seat: k, decider: d}).run()
				return
			}
			c.post(seatEvent{seat: k, err: err})
			c.rest(c.m.cfg.TermLength / 2)
		}
	}()
}

// rest sleeps, at most until the coordinator's time is over.
func (c *coordinator) rest(d time.Duration) {
	select {
	case <-c.ctx.Done():
	case <-time.After(d):
	}
}

func (c *coordinator) post(e seatEvent) {
	select {
	case c.events <- e:
	case <-c.ctx.Done():
	}
}

// learn takes what was found about a seat, and reports whether that may matter.
func (c *coordinator) learn(e seatEvent) (matters bool) {
	s := c.facts.seats[e.seat]
	if e.sealed {
		s.sealing = nil
		return s.lapsed
	}
	if e.err != nil {
		c.m.log(slog.LevelWarn, "a seat cannot be looked at", "seat", e.seat, "err", e.err)
		return false
	}
	complete := c.facts.complete()
	if e.told {
		matters = s.hear(e.entry)
	} else {
		matters = s.learn(e.entry, e.lapsed)
	}
	if s.broken != nil && matters {
		c.m.log(slog.LevelWarn, "a seat is left out", "seat", e.seat, "err", s.broken)
	}
	if s.entry.ElectionNumber != leaderelection.NoElections && !c.twice(e.seat, s.entry) {
		c.watch(e.seat + 1)
	}
	return matters || !complete && c.facts.complete()
}

// twice reports whether a seat's record, e, is that of the seat before: a campaign is for one
// seat. Then there is no end of such seats.
func (c *coordinator) twice(k int, e *leaderelection.RaceEntry) bool {
	s := c.facts.seats[k-1]
	if s == nil || s.entry == nil || e.Incarnation == "" || s.entry.Incarnation != e.Incarnation {
		return false
	}
	if c.facts.seats[k+1] == nil {
		c.m.log(slog.LevelError, "seats cannot be looked at", "err", errOneRecord, "seat", k-1, "other", k)
	}
	return true
}

// seal ends sessions whose seats are over, by winning those seats and releasing them at
// once: an ordinary campaign, with all that it waits for. Then it is on record that the
// session has ended.
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
		c.m.log(slog.LevelInfo, "seals a seat", "seat", k, "election", s.entry.ElectionNumber)
		c.watchers.Add(1)
		go func() {
			defer c.watchers.Done()
			defer cancel()
			err := cfg.Run(ctx, func(context.Context, *leaderelection.TimeView) error { return nil })
			if err != nil && ctx.Err() == nil {
				c.m.log(slog.LevelWarn, "a seat was not sealed", "seat", k, "err", err)
			}
			// What came of it, whether the watcher sees it or not; and not again at once.
			c.lookAt(k, d, func(e *leaderelection.RaceEntry) bool { return !e.Vacant() && c.m.free(e) })
			c.rest(c.m.cfg.TermLength / 4)
			c.post(seatEvent{seat: k, sealed: true})
		}()
	}
}
