//go:build go1.25

package shard

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// The hooks tell of each shard that is owned and let go, with the cause, and of each
// assignment, in order; one that is stuck keeps nobody from anything.
func TestTrace(t *testing.T) {
	play(t, func(g *group) {
		owns, moved, left := map[string]uint64{}, 0, 0
		var version uint64
		free := make(chan struct{})
		leaving := false
		a := g.join("a", func(c *Config) {
			c.ShardTrace = &Trace{
				Owns: func(e Owns) { owns[e.Owned.Name()] = uint64(e.Owned.ElectionNumber()) },
				LetGo: func(e LetGo) {
					if owns[e.Owned.Name()] != uint64(e.Owned.ElectionNumber()) {
						t.Errorf("shard %s is let go by token %d, and was owned by %d", e.Owned.Name(), e.Owned.ElectionNumber(), owns[e.Owned.Name()])
					}
					delete(owns, e.Owned.Name())
					switch {
					case errors.Is(e.Cause, ErrMoved):
						if moved++; e.Time.Sub(e.Asked) < 3*time.Second {
							t.Errorf("shard %s: asked at %v, let go at %v; its callback takes 3s", e.Owned.Name(), e.Asked, e.Time)
						}
					case leaving && errors.Is(e.Cause, errLeft):
						if left++; e.Time.Sub(e.Asked) != 3*time.Second {
							t.Errorf("shard %s: asked at %v, let go at %v; its callback takes 3s", e.Owned.Name(), e.Asked, e.Time)
						}
					default:
						t.Errorf("shard %s is let go because of %v", e.Owned.Name(), e.Cause)
					}
				},
				Assignment: func(a *Assignment) {
					if uint64(a.Version()) <= version {
						t.Errorf("version %d after %d", a.Version(), version)
					}
					version = uint64(a.Version())
				},
			}
		})
		a.linger.Store(int64(3 * time.Second))
		g.settles(12, time.Minute)
		stuck := g.join("b", func(c *Config) { c.ShardTrace = &Trace{Owns: func(Owns) { <-free }} })
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(owns) != 6 || moved != 6 || version < 2 {
			t.Errorf("owns %v, %d moved away, version %d", owns, moved, version)
		}
		leaving = true
		a.leave()
		g.settles(12, time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(owns) != 0 || left != 6 {
			t.Errorf("after it has left: %v, %d let go", owns, left)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := stuck.member.Leave(ctx); err != nil {
			t.Errorf("a hook that is stuck: %v", err)
		}
		g.hide(stuck)
		close(free)
	})
}

// A hook that ends its goroutine, as t.FailNow does, takes no other call with it.
func TestTraceSurvivesGoexit(t *testing.T) {
	play(t, func(g *group) {
		var owns, assignments atomic.Int32
		g.join("a", func(c *Config) {
			c.ShardTrace = &Trace{
				Owns:       func(Owns) { owns.Add(1); runtime.Goexit() },
				Assignment: func(*Assignment) { assignments.Add(1) },
			}
		})
		g.settles(12, time.Minute)
		synctest.Wait()
		if owns.Load() != 12 || assignments.Load() == 0 {
			t.Errorf("%d of 12 Owns, and %d assignments", owns.Load(), assignments.Load())
		}
	})
}

// The log has why each shard was let go, and how long that took.
func TestLetGoIsLogged(t *testing.T) {
	play(t, func(g *group) {
		var said said
		a := g.join("a", func(c *Config) { c.Logger = said.logger() })
		a.linger.Store(int64(3 * time.Second))
		g.settles(12, time.Minute)
		b := g.join("b")
		g.settles(12, time.Minute)
		if time.Sleep(T); !said.has("has let go", "shard=", "token=", "cause=\""+ErrMoved.Error(), "took=3") {
			t.Errorf("it is not said that a shard has moved:\n%s", &said)
		}
		a.cut()
		if time.Sleep(2 * T); !said.has("has let go", "cause=\""+leaderelection.ErrExpired.Error(), "took=0s") {
			t.Errorf("it is not said that the session has ended:\n%s", &said)
		}
		a.heal()
		b.leave()
	})
}
