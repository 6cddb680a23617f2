package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/shard"
)

// group is the store, the members on it, and the ledger.
type group struct {
	term   time.Duration
	shards int

	mu      sync.Mutex
	records map[string]*memory.Decider
	members []*member
	ledger  map[string]*entry // of each shard
	acts    int
	late    int // acts by an older token than one seen before
	owners  int // changes of owner
}

// entry is what the ledger knows of a shard.
type entry struct {
	owner string
	token leaderelection.ElectionNumber
	at    time.Time // of the last act
}

// member is one that takes part.
type member struct {
	*shard.Member
	id   string
	dead atomic.Bool // its connection is lost
	gone bool        // it has left
}

func newGroup(term time.Duration, shards int) *group {
	return &group{term: term, shards: shards, records: map[string]*memory.Decider{}, ledger: map[string]*entry{}}
}

// record is one of the group's records: a real group has a bucket, a table or a database.
func (g *group) record(name string) *memory.Decider {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.records[name] == nil {
		g.records[name] = memory.NewDecider()
	}
	return g.records[name].Handle()
}

// join starts a member. This is what a program of yours would do, with a store of its own.
func (g *group) join(id string) (*member, error) {
	m := &member{id: id}
	var err error
	m.Member, err = shard.Config{
		Store: func(name string) (leaderelection.RaceDecider, error) {
			d := g.record(name)
			d.Inject(m.connection)
			return d, nil
		},
		MemberID:    id,
		Shards:      shard.Numbered(g.shards),
		TermLength:  g.term,
		ClockPolicy: leaderelection.SharedClock, // one machine
		OnOwned: func(ctx context.Context, o *shard.Owned) error {
			// A real member works until it is told to end. This one acts as long as it may,
			// also after it was told, so that the ledger would see an act too many.
			done := ctx.Done()
			for o.ValueInFuture() {
				g.act(id, o)
				select {
				case <-done:
					return nil
				case <-time.After(20 * time.Millisecond):
				}
			}
			return nil
		},
	}.Start(context.Background())
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
	return m, nil
}

// connection loses what a dead member sends.
func (m *member) connection(op memory.Op) memory.Fault {
	if m.dead.Load() {
		return memory.LoseRequests()(op)
	}
	return memory.Fault{}
}

// act is one act of an owner: it has asked its view, and now writes.
func (g *group) act(id string, o *shard.Owned) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !o.ValueInFuture() {
		return
	}
	e := g.ledger[o.Name()]
	if e == nil {
		e = &entry{}
		g.ledger[o.Name()] = e
	}
	g.acts++
	switch {
	case o.ElectionNumber() < e.token || o.ElectionNumber() == e.token && id != e.owner:
		g.late++
	case o.ElectionNumber() > e.token:
		g.owners++
	}
	if o.ElectionNumber() >= e.token {
		*e = entry{id, o.ElectionNumber(), time.Now()}
	}
}

// leave has a member leave in order.
func (g *group) leave(ctx context.Context, m *member) error {
	if err := m.Leave(ctx); err != nil {
		return fmt.Errorf("%s leaves: %w", m.id, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone = true
	return nil
}

// end ends all that run still, the dead as well.
func (g *group) end() {
	for _, m := range g.members {
		m.dead.Store(false)
	}
	for _, m := range g.members {
		_ = m.Leave(context.Background())
	}
}

// settled reports whether all shards are owned, evenly, by those that are alive.
func (g *group) settled() bool {
	all, least, most := 0, g.shards, 0
	for _, m := range g.members {
		if m.gone || m.dead.Load() {
			continue
		}
		n := len(m.Owned())
		all, least, most = all+n, min(least, n), max(most, n)
	}
	return all == g.shards && most-least <= 1
}
