package plan

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// link is one candidate's way to the store, in virtual time: each request takes
// its time there and back.
type link struct {
	w       *world
	inner   *memory.Decider
	latency time.Duration
	cut     *atomic.Bool // nothing arrives any more: the store is gone, or this process
	counts  *counts

	mu   sync.Mutex
	rand *rand.Rand
}

// counts are store operations.
type counts struct{ reads, writes atomic.Int64 }

var errCut = errors.New("no answer")

// delay is one way's time: mostly near half the latency, and once in fifty times
// four times that.
func (l *link) delay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := time.Duration(float64(l.latency) / 2 * (0.7 + 0.6*l.rand.Float64()))
	if l.rand.IntN(50) == 0 {
		d *= 4
	}
	return d
}

// pass is one way.
func (l *link) pass(ctx context.Context) error {
	if !l.w.sleep(ctx, l.delay()) {
		return context.Cause(ctx)
	}
	if l.cut.Load() {
		<-ctx.Done()
		return errCut
	}
	return nil
}

func (l *link) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	l.counts.reads.Add(1)
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	e, err := l.inner.ReadCurrent(ctx)
	if lost := l.pass(ctx); lost != nil {
		return nil, lost
	}
	return e, err
}

func (l *link) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	l.counts.writes.Add(1)
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	token, err := l.inner.WriteEntry(ctx, entry)
	if lost := l.pass(ctx); lost != nil {
		return nil, lost
	}
	return token, err
}

// pushing is a link to a store that pushes changes.
type pushing struct{ *link }

// Changes implements leaderelection.ChangeFeed.
func (p pushing) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		for e, err := range p.inner.Changes(ctx) {
			if lost := p.pass(ctx); lost != nil {
				return // silent: what a cut connection is
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}
