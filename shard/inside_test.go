//go:build go1.25

package shard

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// Rule 5: a shard is not let go while a request that was let in runs, whyever it must go; and no
// request is let in any more.
func TestRule05RequestsThatWereLetIn(t *testing.T) {
	for name, c := range map[string]struct {
		cause error // of the end of the shard's ctx
		goes  func(a *player, fail chan<- error)
	}{
		"the member leaves": {errLeft, func(a *player, _ chan<- error) {
			go func() { _ = a.member.Leave(context.Background()) }()
		}},
		"the shard moves": {ErrMoved, func(a *player, _ chan<- error) { a.g.join("b") }},
		"OnOwned fails":   {ErrFailed, func(_ *player, fail chan<- error) { fail <- errors.New("no such table") }},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(g *group) {
				fail := make(chan error)
				a := g.join("a", func(c *Config) {
					c.OnOwned = func(_ context.Context, o *Owned) error {
						if o.Name() == "3" {
							return <-fail
						}
						return nil // it stays owned
					}
				})
				g.settles(12, time.Minute)
				owned := a.member.Owned()
				if name != "OnOwned fails" {
					fail <- nil
				}
				for _, o := range owned {
					for range 2 {
						if !viewhook.EnterShard(o) {
							t.Fatalf("nothing may enter shard %s, which is owned", o.Name())
						}
					}
					viewhook.LeaveShard(o)
				}
				c.goes(a, fail)
				time.Sleep(T / 2)
				var going []*Owned
				for _, o := range owned {
					entered := viewhook.EnterShard(o)
					if entered {
						viewhook.LeaveShard(o)
					}
					switch {
					case o.Context().Err() == nil:
						if !entered || !o.ValueInFuture() {
							t.Errorf("shard %s stays, and lets in: %v, may be acted on: %v", o.Name(), entered, o.ValueInFuture())
						}
					case entered:
						t.Errorf("a request has entered shard %s, which is to be let go", o.Name())
					case !o.ValueInFuture():
						t.Errorf("shard %s was let go while a request ran", o.Name())
					default:
						going = append(going, o)
						if cause := context.Cause(o.Context()); !errors.Is(cause, c.cause) {
							t.Errorf("shard %s must go by %v, want %v", o.Name(), cause, c.cause)
						}
					}
				}
				if len(going) == 0 {
					t.Fatal("no shard is to be let go")
				}
				for _, o := range owned {
					viewhook.LeaveShard(o)
				}
				time.Sleep(T / 10)
				for _, o := range going {
					if o.ValueInFuture() || viewhook.EnterShard(o) {
						t.Errorf("shard %s is not let go, though its requests have returned", o.Name())
					}
				}
			})
		})
	}
}

// A request that runs on does not keep a shard for longer than DrainTimeout, and does no harm later.
func TestRule05RequestOverrunsTheDrain(t *testing.T) {
	play(t, func(g *group) {
		a := g.join("a")
		g.settles(12, time.Minute)
		o := a.member.Owned()[0]
		viewhook.EnterShard(o)
		begin := time.Now()
		a.leave()
		if took := time.Since(begin); o.ValueInFuture() || took < T || took > 2*T {
			t.Errorf("left after %v, may be acted on: %v", took, o.ValueInFuture())
		}
		viewhook.LeaveShard(o)
		synctest.Wait()
		if viewhook.EnterShard(o) || viewhook.EnterShard(new(Owned)) {
			t.Error("a shard that is over lets a request in")
		}
	})
}
