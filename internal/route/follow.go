package route

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/warnings"
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
	f := &Follower{Table: NewTable(w.Clock, w.MaxClockSkew), done: make(chan struct{})}
	w.Trace = leaderelection.JoinTraces(w.Trace, f.listen(onError))
	lapsed := w.Lapsed
	w.Lapsed = func(ctx context.Context, e leaderelection.RaceEntry) {
		f.Lapsed(e)
		if lapsed != nil {
			lapsed(ctx, e)
		}
	}
	go f.run(ctx, w)
	return f, nil
}

func (f *Follower) run(ctx context.Context, w leaderelection.WatchConfig) {
	defer close(f.done)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := w.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { f.News(e) })
		if ctx.Err() != nil {
			return
		}
		f.failure.Store(&err)
		warnings.Or(w.Logger).LogAttrs(ctx, slog.LevelError, "leaderelection: the election cannot be watched; trying again", slog.Duration("in", pause), slog.Any("err", err))
		if !f.clock.SleepFor(ctx, pause) {
			return
		}
	}
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
