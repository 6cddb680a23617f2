//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// bare is a store whose refusals do not bring the current record along, as S3's do not.
type bare struct{ le.RaceDecider }

func (b bare) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := b.RaceDecider.WriteEntry(ctx, e)
	if errors.Is(err, le.ErrLostRace) {
		err = le.ErrLostRace
	}
	return token, err
}

// bareFeed is the same with a feed.
type bareFeed struct {
	bare
	of *memory.Decider
}

func (b bareFeed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return b.of.Changes(ctx)
}

// crowd is many candidates on one store that takes 5 ms, and all that they ask.
type crowd struct {
	members []*le.Campaign
	stores  []*memory.Decider

	mu  sync.Mutex
	ops []le.StoreOp
}

// join starts a candidate.
func (w *crowd) join(t *testing.T, d *memory.Decider, id string, pushed bool) {
	store := d.Handle()
	store.Inject(memory.Slow(5 * time.Millisecond))
	var decider le.RaceDecider = bare{store.Polled()}
	if pushed {
		decider = bareFeed{bare{store}, store}
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := le.Config{
		Decider: decider, LeaderID: id, TermLength: T, MaxClockSkew: S,
		Logger:    slog.New(slog.DiscardHandler),
		OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() },
		Trace:     w.trace(),
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); <-c.Done() })
	w.members, w.stores = append(w.members, c), append(w.stores, store)
}

func (w *crowd) trace() *le.Trace {
	return &le.Trace{StoreOp: func(op le.StoreOp) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ops = append(w.ops, op)
	}}
}

// since returns how many writes began since a time, and the most operations that began within 100 ms.
func (w *crowd) since(begin time.Time) (writes, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var at []time.Time
	for _, op := range w.ops {
		if op.Start.Before(begin) {
			continue
		}
		at = append(at, op.Start)
		if op.Kind != le.OpRead {
			writes++
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= 100*time.Millisecond {
			first++
		}
		most = max(most, i-first+1)
	}
	return writes, most
}

// Rule 12: when the leader is gone, its standbys do not ask all at once, however many they are, and go on to ask as
// spread as that. Few write: those that learn of a new leader before it is their turn do not.
func TestRule12ManyStandbysSpread(t *testing.T) {
	for _, pushed := range []bool{false, true} {
		t.Run(fmt.Sprintf("pushed %v", pushed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				var w crowd
				for i := range 501 {
					w.join(t, d, fmt.Sprint("c", i), pushed)
					time.Sleep(T / 500)
				}
				for range 5 {
					sleep(T)
					i := slices.IndexFunc(w.members, func(c *le.Campaign) bool { return c.View().ValueInFuture() })
					if i < 0 {
						t.Fatal("no leader")
					}
					gone := time.Now()
					w.stores[i].Inject(memory.LoseRequests())
					sleep(2 * T)
					writes, most := w.since(gone)
					t.Logf("%d writes, %d operations in 100 ms", writes, most)
					if writes > 30 || most > 100 {
						t.Errorf("%d writes, and %d operations within 100 ms, want at most 30 and 100", writes, most)
					}
					w.stores[i].Inject(memory.Slow(5 * time.Millisecond))
				}
			})
		})
	}
}

// Rule 12: so do observers, when the leader is gone.
func TestRule12ManyObserversSpread(t *testing.T) {
	for _, pushed := range []bool{false, true} {
		t.Run(fmt.Sprintf("pushed %v", pushed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				var w crowd
				w.join(t, d, "leader", pushed)
				var lapsed atomic.Int64
				done := make(chan error, 500)
				ctx, cancel := context.WithCancel(t.Context())
				for range 500 {
					time.Sleep(T / 500)
					store := d.Handle()
					store.Inject(memory.Slow(5 * time.Millisecond))
					var decider le.RaceDecider = store
					if !pushed {
						decider = store.Polled()
					}
					o := le.WatchConfig{Decider: decider, MaxClockSkew: S, Trace: w.trace(), Logger: slog.New(slog.DiscardHandler),
						Lapsed: func(context.Context, le.RaceEntry) { lapsed.Add(1) }}
					go func() { done <- o.Watch(ctx, func(context.Context, le.RaceEntry) {}) }()
				}
				sleep(T)
				gone := time.Now()
				w.stores[0].Inject(memory.LoseRequests())
				sleep(T + S + spread + T/2)
				if _, most := w.since(gone); most > 100 || lapsed.Load() != 500 {
					t.Errorf("%d operations within 100 ms, and %d lapses, want at most 100, and 500", most, lapsed.Load())
				}
				cancel()
				for range 500 {
					<-done
				}
			})
		})
	}
}
