//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
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
