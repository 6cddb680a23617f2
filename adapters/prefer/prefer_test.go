//go:build go1.25

package prefer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/adapters/prefer"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const term = 15 * time.Second

// member is a candidate, and what it does beside.
type member struct {
	*le.Campaign
	stop    func()
	elected atomic.Int64
}

func join(t *testing.T, d *memory.Decider, id string, priority int, adjust ...func(*le.Config)) *member {
	t.Helper()
	m := &member{}
	cfg := le.Config{Decider: d.Handle(), LeaderID: id, Priority: priority, TermLength: term, Logger: slog.New(slog.DiscardHandler),
		OnElected: func(context.Context, *le.TimeView) { m.elected.Add(1) }}
	for _, a := range adjust {
		a(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cfg.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	m.Campaign = c
	done := make(chan error, 1)
	go func() { done <- prefer.Over(ctx, c, cfg) }()
	m.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Over returned %v", err)
		}
		<-c.Done()
	}
	return m
}

func (m *member) leads() bool { return m.View().ValueInFuture() }

// A preferred candidate leads after about four terms, by one hand-over, and the other does not take it back.
func TestTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", 0)
		time.Sleep(term)
		b := join(t, d, "b", 1)
		time.Sleep(3 * term)
		if !a.leads() {
			t.Error("asked before the leader had settled")
		}
		time.Sleep(2 * term)
		if !b.leads() || a.leads() {
			t.Errorf("a leads %t, b leads %t", a.leads(), b.leads())
		}
		time.Sleep(100 * term)
		if !b.leads() || a.elected.Load() != 1 || b.elected.Load() != 1 {
			t.Errorf("a led %d times, b %d", a.elected.Load(), b.elected.Load())
		}
		a.stop()
		b.stop()
	})
}

// Nobody is asked by a candidate that is not preferred, nor while the leader has a Hold, nor while the candidate is sick.
func TestAsksNobody(t *testing.T) {
	for name, c := range map[string]struct {
		priority int
		hold     time.Duration
		adjust   func(*le.Config)
	}{
		"alike":    {0, 0, func(*le.Config) {}},
		"less":     {-1, 0, func(*le.Config) {}},
		"a Hold":   {1, time.Hour, func(*le.Config) {}},
		"not well": {1, 0, func(c *le.Config) { c.Healthy = func(context.Context) error { return errors.New("sick") } }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				ctx, cancel := context.WithCancel(t.Context())
				a, err := le.Config{Decider: d.Handle(), LeaderID: "a", TermLength: term}.StartHeld(ctx, c.hold)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(term)
				b := join(t, d, "b", c.priority, c.adjust)
				time.Sleep(20 * term)
				if !a.View().ValueInFuture() || d.Entry().Successor != "" {
					t.Errorf("the record is %+v", d.Entry())
				}
				b.stop()
				cancel()
				<-a.Done()
			})
		})
	}
}

// Over goes by what the campaign knows: while nobody is to be asked, it asks the store nothing.
func TestAsksNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, own := memory.NewDecider(), memory.NewDecider()
		a := join(t, d, "a", 0)
		own.Inject(func(memory.Op) memory.Fault { t.Error("the store was asked"); return memory.Fault{} })
		ctx, cancel := context.WithTimeout(t.Context(), 100*term)
		defer cancel()
		_ = prefer.Over(ctx, a, le.Config{Decider: own, LeaderID: "b", TermLength: term})
		a.stop()
	})
}

// What a campaign has known since before an outage asks nobody: the leader may be another by now.
func TestAsksNoOtherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", 0)
		time.Sleep(term)
		b := join(t, d, "b", 2)
		time.Sleep(term)
		stale := b.Leader()
		a.stop()
		b.stop()
		c := join(t, d, "c", 1)
		time.Sleep(term)
		ctx, cancel := context.WithTimeout(t.Context(), 20*term)
		defer cancel()
		stuck := viewtest.NewCandidate(nil) // one that has learned nothing since
		stuck.SetLeader(stale)
		_ = prefer.Over(ctx, stuck, le.Config{Decider: d.Handle(), LeaderID: "b", Priority: 1, TermLength: term})
		if e := d.Entry(); e.LeaderID != "c" || e.Successor != "" || c.elected.Load() != 1 {
			t.Errorf("the record is %+v", e)
		}
		c.stop()
	})
}

// A candidate that cannot lead asks ever less often.
func TestCannotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(123456789) // no whole second: such a stamp is taken for a coarse one
		d := memory.NewDecider()
		a := join(t, d, "a", 0)
		time.Sleep(term)
		b := join(t, d, "b", 1, func(c *le.Config) { c.Clock = clocks.NewOffset(nil, time.Hour) })
		time.Sleep(200 * term)
		if n := a.elected.Load(); n < 2 || n > 8 {
			t.Errorf("in 200 terms the leader was asked %d times", n-1)
		}
		a.stop()
		b.stop()
	})
}
