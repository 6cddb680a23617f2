//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// viewOnly is a candidate that has no callbacks.
func viewOnly(c *le.Config) { c.OnElected, c.OnOusting = nil, nil }

// A candidate without OnElected leads and hands over like any other; Leadership gives
// what OnElected would have been called with, to as many as ask.
func TestLeadershipWithoutOnElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		b := join(t, d, "b")
		sleep(time.Second)
		a := join(t, d, "a", viewOnly)
		type led struct {
			ctx  context.Context
			view *le.TimeView
			err  error
		}
		answers := make(chan led, 2)
		for range 2 {
			go func() {
				ctx, view, err := a.Leadership(t.Context())
				answers <- led{ctx, view, err}
			}()
		}
		sleep(time.Second)
		if len(answers) > 0 {
			t.Fatal("it returned while another led")
		}
		b.quit()
		sleep(time.Second)
		for range 2 {
			got := <-answers
			if got.err != nil || got.ctx.Err() != nil || !got.view.ValueInFuture() || got.view != a.View() || got.view.ElectionNumber() != 2 {
				t.Fatalf("%+v", got)
			}
		}
		a.leads(t)
		ctx, view, err := a.Leadership(t.Context()) // at once
		if err != nil {
			t.Fatal(err)
		}
		sleep(3 * T)
		if !view.ValueInFuture() {
			t.Error("the lease was not extended")
		}
		a.stop()
		synctest.Wait()
		if view.ValueInFuture() || ctx.Err() == nil || !d.Entry().Vacant() {
			t.Errorf("view alive: %v, ctx %v, record %+v", view.ValueInFuture(), ctx.Err(), d.Entry())
		}
	})
}

// Without OnElected, OnOusting is called for each leadership, and the lease is kept
// until it has returned.
func TestLeadershipWindsDownInOnOusting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", viewOnly, func(c *le.Config) {
			c.OnOusting = func(context.Context) { time.Sleep(T / 2) }
		})
		ctx, view, err := a.Leadership(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a.stop()
		<-ctx.Done()
		sleep(T/2 - time.Millisecond)
		if !view.ValueInFuture() || d.Entry().Vacant() {
			t.Error("the lease was not kept")
		}
		sleep(2 * time.Millisecond)
		if view.ValueInFuture() || !d.Entry().Vacant() {
			t.Error("the lease was not released")
		}
	})
}

// Leadership ends with its ctx, with the campaign, and not with a leadership that is over.
func TestLeadershipEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", viewOnly)
		if _, _, err := a.Leadership(t.Context()); err != nil {
			t.Fatal(err)
		}
		go a.Resign(t.Context())
		synctest.Wait()
		late := errors.New("too late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), T/2, late)
		defer cancel()
		if _, _, err := a.Leadership(ctx); !errors.Is(err, late) {
			t.Errorf("%v, want the cause of ctx", err)
		}
		if _, view, err := a.Leadership(t.Context()); err != nil || view.ElectionNumber() != 2 {
			t.Errorf("%v, %v: want the next leadership", view, err)
		}
		a.quit()
		if _, _, err := a.Leadership(t.Context()); !errors.Is(err, context.Canceled) || !errors.Is(err, a.Wait()) {
			t.Errorf("%v, want what Wait returns", err)
		}
	})
}

// Whoever Leadership tells that this candidate leads finds that Status says so, too.
func TestLeadershipAndStatusAgree(t *testing.T) {
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := le.Config{Decider: memory.NewDecider(), LeaderID: "a"}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_, view, err := c.Leadership(ctx)
		if status := c.Status(); err != nil || status != le.Leading || !view.ValueInFuture() {
			t.Errorf("it leads, and is %v: %v", status, err)
		}
		cancel()
		<-c.Done()
	}
}

// What is being given up, or is over though its ctx has not ended yet, is no leadership:
// Leadership waits for the next.
func TestLeadershipIsNotOneThatEnds(t *testing.T) {
	waits := func(t *testing.T, a *member) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, view, err := a.Leadership(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v: want it to wait", view, err)
		}
	}
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", func(c *le.Config) {
			c.OnOusting = func(context.Context) { time.Sleep(T / 2) }
		})
		sleep(time.Second)
		go a.Resign(t.Context())
		sleep(time.Second)
		if !a.View().ValueInFuture() {
			t.Fatal("the lease was not kept")
		}
		waits(t, a)
	})
	bubble(t, func(t *testing.T) {
		clock := clocks.NewOffset(clocks.System(), 0)
		a := join(t, memory.NewDecider(), "a", func(c *le.Config) { c.Clock = clock })
		sleep(time.Second)
		ctx := a.leadership(t, 0).ctx
		clock.Set(time.Hour) // the campaign looks at it within a second
		waits(t, a)
		if ctx.Err() != nil {
			t.Fatal("the ctx has ended: this shows nothing")
		}
	})
	bubble(t, func(t *testing.T) { // nor is one told of, though there is one, to a caller who has gone
		a := join(t, memory.NewDecider(), "a", viewOnly)
		sleep(time.Second)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if _, _, err := a.Leadership(ctx); !errors.Is(err, gone) {
			t.Errorf("%v, want the cause of ctx", err)
		}
	})
}

// looking is a clock that calls a function whenever it is read.
type looking struct {
	clocks.Clock
	f atomic.Pointer[func()]
}

func (c *looking) Now() time.Time {
	if f := c.f.Load(); f != nil {
		(*f)()
	}
	return c.Clock.Now()
}

// From the first moment at which View is that of a leadership Status says Leading: at any
// moment at which the loop asks for the time.
func TestLeadershipAndStatusAgreeAlways(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := &looking{Clock: clocks.System()}
		a := join(t, memory.NewDecider(), "a", viewOnly, func(c *le.Config) {
			c.Clock = clock
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second))
		})
		looks := 0
		look := func() {
			if a.View().ElectionNumber() == 0 {
				return
			}
			if looks++; a.Status() != le.Leading {
				t.Errorf("it leads, and is %v", a.Status())
			}
		}
		clock.f.Store(&look)
		sleep(T)
		clock.f.Store(nil)
		if a.leads(t); looks == 0 {
			t.Error("nobody has looked")
		}
	})
}
