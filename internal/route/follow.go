package route

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/log/warnings"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// Follower is a Table that is kept up to date by Watch.
type Follower struct {
	*Table
	done    chan struct{}
	failure atomic.Pointer[error]
}

// The pauses between two attempts to watch an election whose store refuses for
// good: what a person must repair, and may.
const (
	firstPause = time.Second
	longPause  = 30 * time.Second
)

// Follow watches an election until ctx ends. It refuses only a WatchConfig that
// is wrong. Where the store refuses for good it goes on trying: a router that
// has given up would have to be restarted by hand.
func Follow(ctx context.Context, w leaderelection.WatchConfig, onError func(error)) (*Follower, error) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Watch(over, func(context.Context, leaderelection.RaceEntry) {}); !errors.Is(err, context.Canceled) {
		return nil, err
	}
	f := &Follower{Table: NewTable(w.Clock, w.MaxClockSkew, w.ClockPolicy), done: make(chan struct{})}
	w.Trace = leaderelection.JoinTraces(w.Trace, f.listen(onError))
	go f.run(ctx, w)
	return f, nil
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

// Done is closed when the Follower has ended after its ctx did.
func (f *Follower) Done() <-chan struct{} { return f.done }
