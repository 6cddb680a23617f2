//go:build go1.25

package rules

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// stuckClock is a clock that does not answer while it is stuck.
type stuckClock struct {
	clocks.Clock
	stuck atomic.Pointer[chan struct{}]
}

func (c *stuckClock) Now() time.Time {
	if wait := c.stuck.Load(); wait != nil {
		<-*wait
	}
	return c.Clock.Now()
}

// Ping is answered by a loop that moves, whatever the store and the callbacks do, and
// until it has stopped; by one that is stuck it is not. And it changes nothing.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := memory.NewDecider()
		clock := &stuckClock{Clock: clocks.System()}
		writes := 0
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		c, err := le.Config{
			Decider: store, LeaderID: "a", Clock: clock, TermLength: T, MaxClockSkew: S,
			OnElected: func(context.Context, *le.TimeView) { <-release }, // heeds nothing
			Trace:     &le.Trace{StoreOp: func(le.StoreOp) { writes++ }},
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ping := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.Ping(ctx)
		}
		for range 100 {
			if err := ping(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(T / 100)
		}
		synctest.Wait()
		if writes > 4 { // a read, the acquisition, and an extension or two
			t.Errorf("%d store operations in a term", writes)
		}
		store.Inject(memory.LoseRequests())
		for range 4 {
			time.Sleep(T)
			if err := ping(); err != nil {
				t.Errorf("while the store does not answer: %v", err)
			}
		}
		stuck := make(chan struct{})
		clock.stuck.Store(&stuck)
		if err := ping(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a loop that is stuck: %v", err)
		}
		clock.stuck.Store(nil)
		close(stuck)
		if err := ping(); err != nil {
			t.Errorf("one that was: %v", err)
		}
		close(release)
		cancel()
		<-c.Done()
		for range 20 { // ctx has ended as well
			if err := errors.Join(ping(), c.Ping(ctx), c.Resign(ctx)); err != nil {
				t.Errorf("one that has stopped: %v", err)
			}
		}
	})
}

// If calls do not return though their ctx has ended, a candidate makes no more of them. It says so once a
// minute, and Ping says so, since a new process would ask again.
func TestPingOfCallsThatHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var l lines
		a := join(t, memory.NewDecider(), "a", logged(&l))
		sleep(T)
		release := make(chan struct{})
		a.store.Inject(memory.Hang(release))
		sleep(4 * T)
		if err := a.Ping(t.Context()); err != nil {
			t.Errorf("too soon: %v", err)
		}
		sleep(time.Hour)
		if err := a.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "no call to the store has returned") {
			t.Errorf("Ping returns %v", err)
		}
		if n := l.count("none is made before one returns"); n < 58 || n > 62 {
			t.Errorf("it was said %d times in an hour", n)
		}
		a.store.Inject(nil)
		close(release)
		sleep(2 * T)
		if err := a.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		a.leads(t)
	})
}

// A LeaderChanged that is always busy, with one call after another, is not stuck.
func TestPingOfABusyCallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(1))
		a := join(t, d, "a", func(c *config) {
			c.LeaderChanged = func(context.Context, le.RaceEntry) { time.Sleep(T / 2) }
		})
		for i := range 30 {
			d.Replace(rival(le.ElectionNumber(i + 2)))
			sleep(T / 3)
			if err := a.Ping(t.Context()); err != nil {
				t.Fatalf("after %d records: %v", i, err)
			}
		}
	})
}
