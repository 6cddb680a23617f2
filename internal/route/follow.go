package route

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/loop"
	"github.com/c8e606e4/leaderelection/shard"
)

// Follower is a Table that is kept up to date by Watch.
type Follower struct {
	*Table
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	failure atomic.Pointer[error]
}

// The pauses between two attempts to watch an election whose store refuses for
// good: what a person must repair, and may.
const (
	firstPause = time.Second
	longPause  = 30 * time.Second
)

// Follow watches an election until Close. It refuses only a WatchConfig that
// is wrong. Where the store refuses for good it goes on trying: a router that
// has given up would have to be restarted by hand.
func Follow(w leaderelection.WatchConfig, onError func(error)) (*Follower, error) {
	if err := w.Watch(ended(), func(context.Context, leaderelection.RaceEntry) {}); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	f := &Follower{Table: NewTable(w.Clock, w.MaxClockSkew, w.ClockPolicy), done: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	w.Trace = leaderelection.JoinTraces(w.Trace, f.listen(onError))
	go f.run(f.ctx, w)
	return f, nil
}

// ended is a ctx with which Watch says what is wrong, and does nothing else.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Close ends it, and returns when that is done.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

// Context ends with Close.
func (f *Follower) Context() context.Context { return f.ctx }

// Or returns what opts points to, or the zero value.
func Or[T any](opts *T) (o T) {
	if opts != nil {
		o = *opts
	}
	return o
}

// run watches. If the store refuses for good, it asks now and then, and logs so in few lines. Each
// Watch by itself would log the refusal once more.
func (f *Follower) run(ctx context.Context, w leaderelection.WatchConfig) {
	defer close(f.done)
	log, begun := warnings.Or(w.Logger), f.clock.Now()
	fails := loop.Outage{Over: "leaderelection: the election is watched again", To: func(level slog.Level, msg string, args ...any) {
		log.Log(ctx, level, msg, args...)
	}}
	pause := firstPause
	for ctx.Err() == nil {
		for err := f.watch(ctx, w); err != nil && ctx.Err() == nil; err = f.probe(ctx, w) {
			f.failure.Store(&err)
			fails.Failed(f.clock.Now().Sub(begun), "", "leaderelection: the election cannot be watched; trying again", "err", err)
			f.clock.SleepFor(ctx, pause)
			pause = min(2*pause, longPause)
		}
		fails.Worked(f.clock.Now().Sub(begun), "")
	}
}

func (f *Follower) watch(ctx context.Context, w leaderelection.WatchConfig) error {
	return w.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { f.News(e) })
}

// probe watches until a call has worked, without a log. It returns an error if none has.
func (f *Follower) probe(ctx context.Context, w leaderelection.WatchConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.Logger = slog.New(slog.DiscardHandler)
	w.Trace = leaderelection.JoinTraces(w.Trace, &leaderelection.Trace{StoreOp: func(op leaderelection.StoreOp) {
		if op.Err == nil {
			cancel()
		}
	}})
	if err := f.watch(ctx, w); ctx.Err() == nil {
		return err
	}
	return nil
}

// listen returns a hook that notes whether reads work.
func (f *Follower) listen(onError func(error)) *leaderelection.Trace {
	return &leaderelection.Trace{StoreOp: func(op leaderelection.StoreOp) {
		if op.Err == nil {
			f.failure.Store(nil)
			return
		}
		f.failure.Store(&op.Err)
		if onError != nil {
			onError(op.Err)
		}
	}}
}

// Failure is the error of the last read of the store, or nil where that worked.
func (f *Follower) Failure() error {
	if err := f.failure.Load(); err != nil {
		return *err
	}
	return nil
}

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
	tables map[string]*Table // of each shard that was asked for and is there
}

// ShardElection returns the name of the election of refusals for a shard. Each shard has its own,
// since a refusal for one says nothing about another.
func ShardElection(group, name string) string { return group + "/" + name }

// NewShards returns Shards that know of no assignment. A nil clock is the system's.
func NewShards(clock clocks.Clock) *Shards {
	return &Shards{clock: clock, known: make(chan struct{}), tables: map[string]*Table{}}
}

// FollowShards returns Shards that watch a group until stop is called, which returns when that is
// done. It refuses only a WatchConfig that is wrong.
func FollowShards(w shard.WatchConfig) (s *Shards, stop func(), err error) {
	if err := w.Watch(ended(), func(context.Context, *shard.Assignment) {}); !errors.Is(err, context.Canceled) {
		return nil, nil, err
	}
	s = NewShards(w.Clock)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		_ = w.Watch(ctx, func(_ context.Context, a *shard.Assignment) { s.news(a) })
	}()
	return s, func() { cancel(); done.Wait() }, nil
}

// news takes in a newer assignment.
func (s *Shards) news(a *shard.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.newest == nil {
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

// entry is what an election's record would say of a shard, by the newest assignment: its owner is the
// leader, and its token the number. The caller holds s.mu.
func (s *Shards) entry(name string) (leaderelection.RaceEntry, bool) {
	o, there := s.newest.Owner(name)
	return leaderelection.RaceEntry{LeaderID: o.Member, HostPort: o.HostPort, ElectionNumber: o.Token, Extension: uint64(s.newest.Version())}, there
}

// Newest returns the newest assignment, or nil if none is known yet.
func (s *Shards) Newest() *shard.Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
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
