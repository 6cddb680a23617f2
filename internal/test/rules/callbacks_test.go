//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// OnElected runs once a leadership, never while an earlier callback of the campaign
// runs; when it returns while leading, the lease is kept.
func TestContractOnElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var calls, running, most atomic.Int64
		enter := func() {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
		}
		a := join(t, d, "a", func(c *config) {
			c.OnElected = func(context.Context, *le.TimeView) {
				enter()
				defer running.Add(-1)
				calls.Add(1)
			}
			c.OnOusting = func(context.Context) {
				enter()
				defer running.Add(-1)
				time.Sleep(40 * time.Second)
			}
		})
		sleep(10 * time.Minute)
		a.leads(t)
		if calls.Load() != 1 {
			t.Fatalf("OnElected was called %d times in one leadership", calls.Load())
		}
		d.Replace(rival(first + 1))
		sleep(35 * time.Second)
		if calls.Load() != 1 {
			t.Fatal("elected again while OnOusting runs")
		}
		sleep(time.Minute)
		a.leads(t)
		if calls.Load() != 2 || most.Load() != 1 {
			t.Fatalf("%d calls, %d callbacks at once", calls.Load(), most.Load())
		}
	})
}

// OnOusting runs once for each OnElected, as soon as ctx was cancelled, and for
// nobody who never led.
func TestContractOnOusting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		a := join(t, d, "a", func(c *config) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
		})
		synctest.Wait()
		b := join(t, d, "b")
		sleep(time.Second)
		left := time.Now()
		a.stop()
		synctest.Wait()
		if len(a.ousted) != 1 || a.ousted[0] != left {
			t.Fatalf("OnOusting ran at %v, want once, without waiting for OnElected", a.ousted)
		}
		close(release)
		<-a.Done()
		sleep(time.Second)
		b.leads(t)
		c := join(t, d, "c")
		sleep(time.Second)
		c.quit()
		if len(c.ousted) != 0 {
			t.Fatal("OnOusting ran for one who never led")
		}
		b.quit()
		if len(b.ousted) != 1 {
			t.Fatal("OnOusting did not run at shutdown")
		}
	})
}

// What comes first is the cause, and OnOusting runs once, however many reasons to
// leave there are.
func TestContractOneCauseOneOusting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); time.Sleep(10 * time.Second) }
		})
		sleep(time.Second)
		if err := le.StepDown(t.Context(), d, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		go a.Resign(t.Context())
		a.stop()
		synctest.Wait()
		d.Replace(rival(first + 1))
		<-a.Done()
		if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrResigned) || len(a.ousted) != 1 {
			t.Fatalf("cause %v, OnOusting %d times", r.cause, len(a.ousted))
		}
	})
}

// A callback that ends its goroutine, as t.FailNow does, counts as returned.
func TestContractGoexit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.OnElected = func(context.Context, *le.TimeView) { runtime.Goexit() }
			c.OnOusting = func(context.Context) { runtime.Goexit() }
			c.LeaderChanged = func(context.Context, le.RaceEntry) { runtime.Goexit() }
		})
		sleep(time.Second)
		a.leads(t)
		a.quit()
		if !d.Entry().Vacant() {
			t.Fatal("not released")
		}
	})
}

// LeaderChanged is called for each new leadership and each vacancy, in order, one at
// a time, with the new record and a live ctx.
func TestContractLeaderChanged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var at atomic.Int64
		a := join(t, d, "a", func(c *config) {
			inner := c.LeaderChanged
			c.LeaderChanged = func(ctx context.Context, e le.RaceEntry) {
				if at.Add(1) != 1 {
					t.Error("two calls at once")
				}
				time.Sleep(20 * time.Second) // delays only the next of its kind
				at.Add(-1)
				if ctx.Err() != nil {
					t.Error("ctx is not live")
				}
				inner(ctx, e)
			}
		})
		sleep(time.Second)
		d.Replace(rival(first + 1))
		sleep(time.Second)
		vacant := &le.RaceEntry{ElectionNumber: first + 1, Extension: 1, TermExpiry: time.Now(), TermLength: T}
		d.Replace(vacant)
		synctest.Wait()
		a.leads(t) // although three calls wait
		a.quit()
		var got []string
		for _, e := range a.seenAll() {
			got = append(got, fmt.Sprintf("%d%s", e.ElectionNumber-first+1, e.LeaderID))
		}
		if want := []string{"1a", "2rival", "2", "3a", "3"}; !slices.Equal(got, want) {
			t.Fatalf("saw %v, want %v", got, want)
		}
	})
}

// Acquire returns after every callback has, and never waits for a store call
// that hangs.
func TestContractAcquireReturns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(1))
		a := join(t, d, "a", polled)
		synctest.Wait()
		release := make(chan struct{})
		a.store.Inject(memory.Hang(release))
		sleep(T)
		left := time.Now()
		a.stop()
		<-a.Done()
		if took := time.Since(left); took > 200*time.Millisecond {
			t.Fatalf("stopping took %v while the store hangs", took)
		}
		if err := a.Wait(); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait says %v", err)
		}
		close(release)
	})
}

// The cause of the ctx given to Start is what Wait returns and the leader's ctx
// ends with.
func TestContractCauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cause := errors.New("shutting down for the night")
		ctx, cancel := context.WithCancelCause(t.Context())
		var got error
		c, err := le.Config{Decider: memory.NewDecider(), LeaderID: "a", OnElected: func(ctx context.Context, _ *le.TimeView) {
			<-ctx.Done()
			got = context.Cause(ctx)
		}}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		cancel(cause)
		if err := c.Wait(); err != cause || got != cause {
			t.Fatalf("Wait: %v, ctx: %v, want %v", err, got, cause)
		}
		if c.Status() != le.Stopped || c.View().ValueInFuture() {
			t.Fatalf("status %v after the end", c.Status())
		}
		if err := c.Resign(t.Context()); err != nil {
			t.Fatalf("Resign of a stopped campaign: %v", err)
		}
	})
}

// Resign from within OnElected, with the leader's ctx, does not wait for itself.
func TestContractResignInsideOnElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var c atomic.Pointer[le.Campaign]
		got := make(chan error, 1)
		a := join(t, d, "a", func(cfg *config) {
			cfg.OnElected = func(ctx context.Context, _ *le.TimeView) {
				time.Sleep(time.Second)
				got <- c.Load().Resign(ctx)
			}
		})
		c.Store(a.Campaign)
		sleep(time.Second)
		if err := <-got; !errors.Is(err, le.ErrResigned) {
			t.Fatalf("Resign returned %v, want the cause at once", err)
		}
		if !d.Entry().Vacant() {
			t.Fatal("not released")
		}
	})
}

// The values of the ctx given to Start reach every callback.
func TestContractValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
		var got [3]any
		c, err := le.Config{
			Decider: memory.NewDecider(), LeaderID: "a",
			OnElected:     func(ctx context.Context, _ *le.TimeView) { got[0] = ctx.Value(key{}) },
			OnOusting:     func(ctx context.Context) { got[1] = ctx.Value(key{}) },
			LeaderChanged: func(ctx context.Context, _ le.RaceEntry) { got[2] = ctx.Value(key{}) },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		cancel()
		_ = c.Wait()
		if got != [3]any{"v", "v", "v"} {
			t.Fatalf("values %v", got)
		}
	})
}

func TestRun(t *testing.T) {
	failed := errors.New("failed")
	run := func(t *testing.T, d *memory.Decider, ctx context.Context, job func(context.Context, *le.TimeView) error) error {
		t.Helper()
		return le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S}.Run(ctx, job)
	}
	t.Run("once, released", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			n := 0
			begin := time.Now()
			err := run(t, d, t.Context(), func(ctx context.Context, v *le.TimeView) error {
				n++
				time.Sleep(time.Minute)
				if !v.ValueInFuture() || v.ElectionNumber() != first {
					t.Error("the job does not lead")
				}
				return nil
			})
			if err != nil || n != 1 || !d.Entry().Vacant() || time.Since(begin) > time.Minute+time.Second {
				t.Fatalf("%v after %d runs and %v, record %+v", err, n, time.Since(begin), d.Entry())
			}
		})
	})
	t.Run("job's error", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			err := run(t, d, t.Context(), func(context.Context, *le.TimeView) error { return failed })
			if err != failed || !d.Entry().Vacant() {
				t.Fatalf("%v, record %+v", err, d.Entry())
			}
		})
	})
	t.Run("ousted", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			for _, result := range []error{nil, failed} {
				d.Replace(nil)
				err := run(t, d, t.Context(), func(ctx context.Context, _ *le.TimeView) error {
					d.Replace(rival(first + 1))
					<-ctx.Done()
					return result
				})
				if !errors.Is(err, le.ErrOusted) || result != nil && !errors.Is(err, failed) {
					t.Fatalf("job returned %v, Run %v", result, err)
				}
			}
		})
	})
	t.Run("ctx ends before leading", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := run(t, d, ctx, func(context.Context, *le.TimeView) error { t.Error("ran"); return nil })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		})
	})
	t.Run("ctx ends under the job", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			for _, result := range []error{nil, failed} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := run(t, d, ctx, func(ctx context.Context, v *le.TimeView) error {
					<-ctx.Done()
					time.Sleep(20 * time.Second) // the lease is kept meanwhile
					return result
				})
				cancel()
				// With DrainTimeout 15 s and a view of up to 14 s more, the view
				// is alive: work that ended well, ended well.
				if result == nil && err != nil || result != nil && (!errors.Is(err, failed) || !errors.Is(err, context.DeadlineExceeded)) {
					t.Fatalf("job returned %v, Run %v", result, err)
				}
				if !d.Entry().Vacant() {
					t.Fatal("not released")
				}
			}
		})
	})
	t.Run("Goexit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			err := run(t, memory.NewDecider(), t.Context(), func(context.Context, *le.TimeView) error { runtime.Goexit(); return nil })
			if err == nil {
				t.Fatal("a job that never returned is no success")
			}
		})
	})
}

// A job that ends after its view has, though its ctx has not been told yet, did
// not end as leader.
func TestRunEndsAfterTheView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := clocks.NewOffset(nil, 0)
		err := le.Config{Decider: memory.NewDecider(), LeaderID: "a", TermLength: T, MaxClockSkew: S, Clock: clock}.Run(t.Context(),
			func(context.Context, *le.TimeView) error {
				clock.Set(T) // as after a suspend
				return nil
			})
		if !errors.Is(err, le.ErrExpired) {
			t.Fatalf("Run returned %v, want ErrExpired", err)
		}
	})
}
