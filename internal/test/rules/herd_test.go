//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var errSlowDown = errors.New("503: slow down")

// bucket is what a store takes: so many requests a second, and as many at once.
type bucket struct {
	mu           sync.Mutex
	rate, tokens float64
	at           time.Time
	asked        int
}

func (b *bucket) take() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.rate, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	b.asked++
	if b.tokens < 1 {
		return errSlowDown
	}
	b.tokens--
	return nil
}

func (b *bucket) set(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate, b.tokens, b.at = rate, 0, time.Now()
}

// count returns how many requests there were since the last call.
func (b *bucket) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.asked
	b.asked = 0
	return n
}

// limited is a store that takes 5 ms, and what its bucket allows.
type limited struct {
	le.RaceDecider
	b *bucket
}

func (l limited) wait(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return l.b.take()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l limited) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.RaceDecider.ReadCurrent(ctx)
}

func (l limited) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.RaceDecider.WriteEntry(ctx, e)
}

// herd is many candidates on one limited store.
type herd struct {
	b       *bucket
	mu      sync.Mutex
	leads   int
	elected int
}

func (h *herd) join(t *testing.T, d *memory.Decider, id string) (quit func()) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := le.Config{
		Decider: limited{d.Handle().Polled(), h.b}, LeaderID: id, TermLength: T, MaxClockSkew: S,
		Logger: slog.New(slog.DiscardHandler),
		OnElected: func(ctx context.Context, _ *le.TimeView) {
			h.add(1, 1)
			<-ctx.Done()
			h.add(-1, 0)
		},
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		cancel()
		<-c.Done()
	}
}

func (h *herd) add(leads, elected int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leads += leads
	h.elected += elected
}

func (h *herd) now() (leads, elected int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leads, h.elected
}

// await returns how long it takes until there is a leader.
func (h *herd) await(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	for began := time.Now(); ; sleep(50 * time.Millisecond) {
		switch n, _ := h.now(); {
		case n > 0:
			return time.Since(began)
		case time.Since(began) > limit:
			t.Fatalf("no leader within %v", limit)
		}
	}
}

// afterOutage is the bound for a leader to be back after an outage, by the docs.
const afterOutage = max(T+3*S, 5*T/4)

// Rule 11: standbys that a store refuses ask no more often than others, so they cost the leader
// nothing, and an outage costs the store no more than calm.
func TestRule11ManyStandbys(t *testing.T) {
	for _, rate := range []float64{100, 20, 15, 10} { // 13 reads a second are the polls of 100
		t.Run(fmt.Sprint(rate), func(t *testing.T) { bubble(t, func(t *testing.T) { testHerd(t, 100, rate) }) })
	}
}

// Rule 11: the same for a thousand.
func TestRule11AThousandStandbys(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: a minute")
	}
	for _, rate := range []float64{1000, 200, 150, 100} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) { bubble(t, func(t *testing.T) { testHerd(t, 1000, rate) }) })
	}
}

func testHerd(t *testing.T, n int, rate float64) {
	h := &herd{b: &bucket{}}
	h.b.set(rate)
	d := memory.NewDecider()
	for i := range n {
		quit := h.join(t, d, fmt.Sprint("c", i))
		defer quit()
	}
	defer h.b.set(1e6)
	t.Logf("cold start: a leader after %v", h.await(t, 2*time.Minute))
	sleep(time.Minute)
	_, before := h.now()
	h.b.count()
	sleep(10 * time.Minute)
	leads, after := h.now()
	calm := float64(h.b.count()) / 600
	t.Logf("calm: %.1f requests a second", calm)
	if leads != 1 || after != before {
		t.Errorf("in ten minutes the leader has lost its place %d times", after-before)
	}
	h.b.set(0)
	sleep(5 * time.Minute)
	outage := float64(h.b.count()) / 300
	t.Logf("outage: %.1f requests a second", outage)
	if polls := float64(n) / (T / 2).Seconds(); outage > min(calm, polls) {
		t.Errorf("in an outage %.1f requests a second, in calm %.1f, of which %.1f are polls", outage, calm, polls)
	}
	h.b.set(rate)
	t.Logf("a leader is back after %v", h.await(t, afterOutage+time.Second))
}

// Rule 11: a standby that fails asks once more soon, and then less often than one that works. So
// does an observer.
func TestRule11AFailingStandby(t *testing.T) {
	for _, poll := range []time.Duration{0, 10 * time.Millisecond, time.Second, 2 * T} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			join(t, d, "a")
			sleep(time.Second)
			b := join(t, d, "b", polled, func(c *config) { c.PollInterval = poll })
			var reads []time.Time
			o := d.Handle()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- le.WatchConfig{Decider: o.Polled(), MaxClockSkew: S, PollInterval: poll, Logger: slog.New(slog.DiscardHandler), Trace: &le.Trace{StoreOp: func(op le.StoreOp) {
					reads = append(reads, op.Start)
				}}}.Watch(ctx, func(context.Context, le.RaceEntry) {})
			}()
			sleep(T)
			b.store.Inject(memory.LoseRequests())
			o.Inject(memory.LoseRequests())
			cut := time.Now()
			sleep(time.Hour)
			if poll == 0 {
				poll = T / 2
			}
			pace := max(min(poll, T), 250*time.Millisecond)
			var ours []time.Time
			for _, op := range b.opsSince(cut) {
				ours = append(ours, op.Start)
			}
			cancel()
			<-done
			n := 0
			for n < len(reads) && reads[n].Before(cut) {
				n++
			}
			for who, all := range map[string][]time.Time{"the standby": ours, "the observer": reads[n:]} {
				if most := int(time.Hour/pace) * 6 / 10; len(all) > most {
					t.Errorf("poll %v: %s has asked %d times in an hour, want at most %d", poll, who, len(all), most)
				}
				for i := range all[1:] {
					if gap := all[i+1].Sub(all[i]); i > 3 && gap < 2*pace || gap > 5*pace/2+S {
						t.Errorf("poll %v: %s has asked for the %dth time after %v", poll, who, i+2, gap)
					}
				}
			}
		})
	}
}

// Rule 11: after an outage, however long, the last leader is the first to be back. If it is gone,
// another leads within the bound for standbys.
func TestRule11TheLastLeaderIsBackFirst(t *testing.T) {
	for name, fault := range map[string]func() memory.Faults{
		"fails":  func() memory.Faults { return memory.Fail(errSlowDown) },
		"writes": func() memory.Faults { return memory.Fail(errSlowDown).On(memory.Write) },
	} {
		for _, feed := range []bool{false, true} {
			for _, gone := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, feed %v, gone %v", name, feed, gone), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						var all []*member
						for i := range 4 {
							all = append(all, join(t, d, fmt.Sprint(i), func(c *config) {
								if !feed {
									polled(c)
								}
							}))
							sleep(time.Second)
						}
						for i := range 4 {
							all[i].store.Inject(fault())
						}
						sleep(5*time.Minute + T/3)
						for i := range 4 {
							all[i].store.Inject(nil)
						}
						limit := T / 6
						if gone {
							all[0].quit()
							all = all[1:]
							limit = afterOutage
						}
						leader := -1
						back := time.Now()
						for leader < 0 && time.Since(back) <= limit {
							sleep(50 * time.Millisecond)
							leader = slices.IndexFunc(all, func(m *member) bool { return m.View().ValueInFuture() })
						}
						t.Logf("%d leads after %v", leader, time.Since(back))
						if leader < 0 || leader > 0 && !gone {
							t.Errorf("%d leads %v after the outage", leader, time.Since(back))
						}
					})
				})
			}
		}
	}
}

// asksForPause makes each call fail, with a Retry-After.
func asksForPause(d time.Duration) memory.Faults {
	return memory.Fail(fmt.Errorf("reading: %w", &le.RetryAfterError{After: d, Err: errSlowDown}))
}

// Rule 11: a pause that the store asks for is kept by a standby and an observer to the end, and by
// a leader as far as its view allows.
func TestRule11RetryAfter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(time.Second)
		b := join(t, d, "b", polled)
		sleep(T)
		a.awaitExtension()
		const pause = 50 * time.Second
		a.store.Inject(asksForPause(pause))
		b.store.Inject(asksForPause(pause))
		cut := time.Now()
		sleep(10 * time.Minute)
		ops := b.opsSince(cut)
		if len(ops) < 4 {
			t.Fatalf("only %d requests of the standby", len(ops))
		}
		for i := range ops[1:] {
			if gap := ops[i+1].Start.Sub(ops[i].Start); gap < pause || gap > pause+2*S {
				t.Errorf("the standby has asked again after %v, want %v", gap, pause)
			}
		}
		r := a.leadership(t, 0)
		near(t, "the leader's view", r.done.Sub(cut), T-S, S)
		var tries []time.Time
		for _, op := range a.opsSince(cut) {
			if op.Start.Before(r.done) {
				tries = append(tries, op.Start)
			}
		}
		if len(tries) < 3 || len(tries) > 8 {
			t.Errorf("the leader has tried at %v", tries)
		} else if gap := tries[1].Sub(tries[0]); gap < 2*time.Second {
			t.Errorf("the leader has tried again after %v", gap)
		}
	})
	bubble(t, func(t *testing.T) { // no store is waited for longer than a minute
		a := join(t, memory.NewDecider(), "a", polled)
		sleep(time.Second)
		a.store.Inject(asksForPause(24 * time.Hour).Times(20))
		sleep(time.Hour)
		a.leads(t)
	})
	bubble(t, func(t *testing.T) { // a short one
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(T)
		a.store.Inject(asksForPause(2 * time.Second).Times(1))
		a.awaitExtension()
		a.leads(t)
		ops := a.opsSince(time.Time{})
		for i, op := range ops[:len(ops)-1] {
			if gap := ops[i+1].Start.Sub(op.Start); op.Err != nil && gap != 2*time.Second {
				t.Errorf("the leader has tried again after %v", gap)
			}
		}
	})
}
