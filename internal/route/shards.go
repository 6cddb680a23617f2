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

// Shards are the newest assignment of one group, as a Table for each shard. Its methods
// may be called by any number of goroutines at once.
type Shards struct {
	clock clocks.Clock
	known chan struct{} // closed by the first assignment

	mu     sync.Mutex
	newest *shard.Assignment
	tables map[string]*Table // of each shard that was asked for
}

// NewShards returns Shards that know of no assignment. A nil clock is the system's.
func NewShards(clock clocks.Clock) *Shards {
	return &Shards{clock: clock, known: make(chan struct{}), tables: map[string]*Table{}}
}

// FollowShards returns Shards that watch a group until ctx ends, and what is closed when
// they have ended then. It refuses only a WatchConfig that is wrong.
func FollowShards(ctx context.Context, w shard.WatchConfig) (*Shards, <-chan struct{}, error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Watch(over, func(context.Context, *shard.Assignment) {}); !errors.Is(err, context.Canceled) {
		return nil, nil, err
	}
	s, done := NewShards(w.Clock), make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Watch(ctx, func(_ context.Context, a *shard.Assignment) { s.News(a) }) // it ends with ctx
	}()
	return s, done, nil
}

// News takes in an assignment. One that is not newer than what is known is no news.
func (s *Shards) News(a *shard.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a == nil || s.newest != nil && a.Version() <= s.newest.Version():
		return
	case s.newest == nil:
		close(s.known)
	}
	s.newest = a
	for name, table := range s.tables {
		o, there := a.Owner(name)
		if !there { // nobody owns it, by the number that was known last
			o.Token = table.Load().Entry.ElectionNumber
		}
		table.News(entryOf(a, o))
	}
}

// entryOf is what an election's record would say of a shard: its token is the number.
func entryOf(a *shard.Assignment, o shard.Owner) leaderelection.RaceEntry {
	return leaderelection.RaceEntry{LeaderID: o.Member, HostPort: o.HostPort, ElectionNumber: o.Token, Extension: uint64(a.Version())}
}

// Owner returns who owns a shard, and false if there is no such shard, or no assignment
// is known yet.
func (s *Shards) Owner(name string) (shard.Owner, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return shard.Owner{}, false
	}
	return s.newest.Owner(name)
}

// Members returns those that the newest assignment names.
func (s *Shards) Members() []shard.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
		return nil
	}
	return s.newest.Members()
}

// Table returns the Table of one shard, in which its owner is the leader. It waits until
// an assignment is known, for wait at most.
func (s *Shards) Table(ctx context.Context, name string, wait time.Duration) (*Table, error) {
	if !s.awaits(ctx, wait) {
		return nil, ErrNoAssignment
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if table := s.tables[name]; table != nil {
		return table, nil
	}
	o, there := s.newest.Owner(name)
	if !there {
		return nil, ErrNoShard
	}
	table := NewLastingTable(s.clock)
	table.News(entryOf(s.newest, o))
	s.tables[name] = table
	return table, nil
}

// awaits reports whether an assignment is known, after wait at the latest.
func (s *Shards) awaits(ctx context.Context, wait time.Duration) bool {
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
