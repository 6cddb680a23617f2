package route

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/shard"
)

// Why Shards has no Table.
var (
	ErrNoAssignment = errors.New("no assignment of the group has been read yet")
	ErrNoShard      = errors.New("there is no such shard")
)

// assignment is a *shard.Assignment; tests have one of their own.
type assignment interface {
	comparable
	Version() leaderelection.ElectionNumber
}

// Shards are the newest assignment of one group, as a Table for each shard. Its methods
// may be called by any number of goroutines at once.
type Shards[A assignment] struct {
	clock  clocks.Clock
	record func(a A, name string) (leaderelection.RaceEntry, bool)
	known  chan struct{} // closed by the first assignment

	mu     sync.Mutex
	newest A
	tables map[string]*Table // of each shard that was asked for and is there
}

// OfGroup returns Shards of the assignments of package shard, which know of none. A nil clock is the system's.
func OfGroup(clock clocks.Clock) *Shards[*shard.Assignment] {
	return NewShards(clock, func(a *shard.Assignment, name string) (leaderelection.RaceEntry, bool) {
		o, there := a.Owner(name)
		return leaderelection.RaceEntry{LeaderID: o.Member, HostPort: o.HostPort, ElectionNumber: o.Token}, there
	})
}

// ShardElection returns the name of the election of refusals for a shard. Each shard has its own,
// since a refusal for one says nothing about another.
func ShardElection(group, name string) string { return group + "/" + name }

// NewShards returns Shards that know of no assignment. A nil clock is the system's. Record
// returns what an election's record would say of a shard: its owner is the leader, and its
// token the number. It returns false if there is no such shard.
func NewShards[A assignment](clock clocks.Clock, record func(a A, name string) (leaderelection.RaceEntry, bool)) *Shards[A] {
	return &Shards[A]{clock: clock, record: record, known: make(chan struct{}), tables: map[string]*Table{}}
}

// Follow has s watch a group until ctx ends, and returns what is closed when it has ended
// then. It refuses only a WatchConfig that is wrong, whose Watch this is.
func (s *Shards[A]) Follow(ctx context.Context, watch func(context.Context, func(context.Context, A)) error) (<-chan struct{}, error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := watch(over, func(context.Context, A) {}); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = watch(ctx, func(_ context.Context, a A) { s.News(a) }) // it ends with ctx
	}()
	return done, nil
}

// News takes in an assignment. One that is not newer than what is known is no news.
func (s *Shards[A]) News(a A) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none A
	switch {
	case a == none || s.newest != none && a.Version() <= s.newest.Version():
		return
	case s.newest == none:
		close(s.known)
	}
	s.newest = a
	for name, table := range s.tables {
		if e, there := s.entry(name); there {
			table.News(e)
		} else { // if it comes back, it gets another Table
			delete(s.tables, name)
			table.Remove()
		}
	}
}

// entry is the record of a shard, of the newest assignment. The caller holds s.mu.
func (s *Shards[A]) entry(name string) (leaderelection.RaceEntry, bool) {
	e, there := s.record(s.newest, name)
	e.Extension = uint64(s.newest.Version())
	return e, there
}

// Newest returns the newest assignment, or nil if none is known yet.
func (s *Shards[A]) Newest() A {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// Table returns the Table of one shard, in which its owner is the leader. It waits until
// an assignment is known, for wait at most.
func (s *Shards[A]) Table(ctx context.Context, name string, wait time.Duration) (*Table, error) {
	if !s.awaits(ctx, wait) {
		return nil, ErrNoAssignment
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if table := s.tables[name]; table != nil {
		return table, nil
	}
	e, there := s.entry(name)
	if !there {
		return nil, ErrNoShard
	}
	table := NewLastingTable(s.clock)
	table.News(e)
	s.tables[name] = table
	return table, nil
}

// awaits reports whether an assignment is known, after wait at the latest.
func (s *Shards[A]) awaits(ctx context.Context, wait time.Duration) bool {
	select {
	case <-s.known:
		return true
	default:
	}
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-s.known:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}
