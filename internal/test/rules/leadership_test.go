//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
)

// viewOnly is a candidate that has no callbacks.
func viewOnly(c *config) { c.OnElected, c.OnOusting = nil, nil }

// What Lead returns, and when.
func TestLead(t *testing.T) {
	scenes{
		"without OnElected, to as many as ask": func(t *testing.T) {
			d := memory.NewDecider()
			b := join(t, d, "b")
			sleep(time.Second)
			a := join(t, d, "a", viewOnly)
			answers := make(chan *le.Leadership, 2)
			for range 2 {
				go func() {
					l, err := a.Lead(t.Context())
					if err != nil {
						t.Error(err)
					}
					answers <- l
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
				if got.Context().Err() != nil || !got.View().ValueInFuture() || got.View() != a.View() || got.View().ElectionNumber() != d.Entry().ElectionNumber {
					t.Fatalf("%+v", got)
				}
				got.Release()
			}
			a.leads(t)
			l := lead(t, a) // at once
			ctx, view := l.Context(), l.View()
			sleep(3 * T)
			if !view.ValueInFuture() {
				t.Error("the lease was not extended")
			}
			l.Release()
			a.stop()
			synctest.Wait()
			if view.ValueInFuture() || ctx.Err() == nil || !d.Entry().Vacant() {
				t.Errorf("view alive: %v, ctx %v, record %+v", view.ValueInFuture(), ctx.Err(), d.Entry())
			}
		},
		"OnOusting is called, and waited for": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", viewOnly, func(c *config) {
				c.OnOusting = func(context.Context) { time.Sleep(T / 2) }
			})
			l := lead(t, a)
			ctx, view := l.Context(), l.View()
			l.Release()
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
		},
		"not a leadership that is over, to its ctx or to who has gone": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", viewOnly)
			lead(t, a).Release()
			go a.Resign(t.Context())
			synctest.Wait()
			late := errors.New("too late")
			ctx, cancel := context.WithTimeoutCause(t.Context(), T/2, late)
			defer cancel()
			if _, err := a.Lead(ctx); !errors.Is(err, late) {
				t.Errorf("%v, want the cause of ctx", err)
			}
			sleep(2 * T)
			a.leads(t) // and nobody asks any more
			l := lead(t, a)
			if got := l.View().ElectionNumber(); got != d.Entry().ElectionNumber || !l.View().ValueInFuture() {
				t.Errorf("leadership %d: want the next leadership", got)
			}
			l.Release()
			began := time.Now()
			a.quit()
			near(t, "stopping, though one who has gone had asked,", time.Since(began), 0, time.Second)
			if _, err := a.Lead(t.Context()); !errors.Is(err, context.Canceled) || !errors.Is(err, a.Wait()) {
				t.Errorf("%v, want what Wait returns", err)
			}
		},
		"nothing is kept for who goes as it is handed": func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a", viewOnly)
			lead(t, a).Release()
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			for range 20 {
				if l, _ := a.Lead(leaving{gone}); l != nil {
					l.Release() // it was faster
				}
			}
			began := time.Now()
			a.quit()
			near(t, "stopping, though those who have gone were handed a Leadership,", time.Since(began), 0, time.Second)
		},
		"no other, when the only leadership has ended": func(t *testing.T) {
			started := make(chan *le.Campaign)
			d := memory.NewDecider()
			c, err := le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S,
				OnOusting: func(context.Context) { time.Sleep(2 * time.Second) },
				LeaderChanged: func(ctx context.Context, _ le.RaceEntry) {
					if c := <-started; c != nil {
						c.Lead(ctx)
					}
				},
			}.TryAcquire(t.Context())
			must(t, err)
			began := time.Now()
			d.Replace(rival(first + 1))
			sleep(time.Second)
			started <- c
			close(started)
			_ = c.Wait()
			near(t, "the campaign", time.Since(began), 2*time.Second, 3*time.Second)
		},
		"an error when the campaign stops, even to LeaderChanged": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(first))
			told, started := make(chan error, 1), make(chan *member, 1)
			a := join(t, d, "b", func(c *config) {
				c.LeaderChanged = func(ctx context.Context, _ le.RaceEntry) {
					_, err := (<-started).Lead(ctx)
					told <- err
				}
			})
			started <- a
			sleep(time.Second)
			a.quit()
			if err := <-told; !errors.Is(err, context.Canceled) {
				t.Errorf("Lead returns %v", err)
			}
		},
	}.run(t)
}

// lead is what Lead returns.
func lead(t *testing.T, m *member) *le.Leadership {
	t.Helper()
	l, err := m.Lead(t.Context())
	must(t, err)
	return l
}

// When leadership is given up the lease is kept, and extended, until all that Lead has returned is
// released, each once: for DrainTimeout at most.
func TestLeadKeepsTheLeaseUntilRelease(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *member, *memory.Decider){
		"StepDown": func(t *testing.T, _ *member, d *memory.Decider) {
			must(t, le.StepDown(t.Context(), d, false))
		},
		"Resign": func(t *testing.T, a *member, _ *memory.Decider) { go a.Resign(t.Context()) },
		"stop":   func(_ *testing.T, a *member, _ *memory.Decider) { a.stop() },
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", viewOnly, func(c *config) { c.DrainTimeout = 3 * T })
			first, second := lead(t, a), lead(t, a)
			b := join(t, d, "b")
			sleep(time.Second)
			end(t, a, d)
			synctest.Wait()
			if first.Context().Err() == nil || second.Context().Err() == nil {
				t.Fatal("ctx has not ended")
			}
			sleep(T)
			first.Release()
			first.Release()
			sleep(T)
			if !second.View().ValueInFuture() || d.Entry().LeaderID != "a" || a.Status() != le.Draining {
				t.Fatalf("the lease was not kept: a is %v, the record is %+v", a.Status(), d.Entry())
			}
			b.follows(t)
			second.Release()
			sleep(time.Second)
			if b.leads(t); second.View().ValueInFuture() {
				t.Error("the view is not over")
			}
		})
	}
	bubble(t, func(t *testing.T) { // what is never released is waited for no longer
		d := memory.NewDecider()
		a := join(t, d, "a", viewOnly)
		l := lead(t, a)
		b := join(t, d, "b")
		a.stop()
		sleep(3 * T)
		if b.leads(t); l.View().ValueInFuture() {
			t.Error("the view is not over")
		}
		select {
		case <-a.Done():
			t.Error("the campaign has stopped before its work has")
		default:
		}
		l.Release()
		synctest.Wait()
		<-a.Done()
	})
}

// leaving is a ctx that ends just after Lead has looked at it.
type leaving struct{ context.Context }

func (leaving) Err() error { return nil }

// Whoever Lead tells that this candidate leads finds that Status says so, too.
func TestLeadershipAndStatusAgree(t *testing.T) {
	for range 500 {
		c, cancel := start(t, le.Config{Decider: memory.NewDecider(), LeaderID: "a"})
		l, err := c.Lead(t.Context())
		must(t, err)
		if status := c.Status(); status != le.Leading || !l.View().ValueInFuture() {
			t.Errorf("it leads, and is %v", status)
		}
		l.Release()
		cancel()
		<-c.Done()
	}
}

// What is being given up, or is over though its ctx has not ended yet, is no leadership:
// Lead waits for the next.
func TestLeadIsNotOneThatEnds(t *testing.T) {
	waits := func(t *testing.T, a *member) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if l, err := a.Lead(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v: want it to wait", l, err)
		}
	}
	bubble(t, func(t *testing.T) {
		_, a := leader(t, func(c *config) {
			c.OnOusting = func(context.Context) { time.Sleep(T / 2) }
		})
		go a.Resign(t.Context())
		sleep(time.Second)
		if !a.View().ValueInFuture() {
			t.Fatal("the lease was not kept")
		}
		waits(t, a)
	})
	bubble(t, func(t *testing.T) {
		clock := clocks.NewOffset(clocks.System(), 0)
		_, a := leader(t, func(c *config) { c.Clock = clock })
		ctx := a.leadership(t, 0).ctx
		clock.Set(time.Hour) // the campaign looks at it within a second
		if ctx.Err() != nil {
			t.Fatal("the ctx has ended: this shows nothing")
		}
		waits(t, a)
	})
	bubble(t, func(t *testing.T) { // nor is one told of, though there is one, to a caller who has gone
		_, a := leader(t, viewOnly)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if _, err := a.Lead(ctx); !errors.Is(err, gone) {
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

// From the first moment at which View is that of a leadership Status says Leading, and not before: at any
// moment at which the loop asks for the time.
func TestLeadershipAndStatusAgreeAlways(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := &looking{Clock: clocks.System()}
		a := join(t, memory.NewDecider(), "a", viewOnly, func(c *config) {
			c.Clock = clock
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second))
		})
		looks := 0
		look := func() {
			number, status := a.View().ElectionNumber(), a.Status()
			if number == le.NoElections && status != le.Leading {
				return
			}
			if looks++; number == le.NoElections || status != le.Leading {
				t.Errorf("it is %v, and its view is of leadership %d", status, number)
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

// Rule 9: work that a gate has let in.
func TestRule09WorkThatEntered(t *testing.T) {
	scenes{
		"keeps the lease, and when leadership is given up none enters": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", viewOnly)
			lead(t, a).Release()
			view := a.View()
			for range 2 {
				if !viewhook.Enter(view) {
					t.Fatal("nothing may enter while it leads")
				}
			}
			a.stop()
			sleep(T / 4)
			if viewhook.Enter(view) {
				t.Error("work entered while leadership was being given up")
			}
			viewhook.Leave(view)
			sleep(T / 4)
			if !view.ValueInFuture() || d.Entry().Vacant() {
				t.Error("the lease was not kept for the work that was left")
			}
			viewhook.Leave(view)
			synctest.Wait()
			if view.ValueInFuture() || !d.Entry().Vacant() || viewhook.Enter(view) {
				t.Errorf("view alive: %v, record %+v", view.ValueInFuture(), d.Entry())
			}
		},
		"longer ago than DrainTimeout loses the lease, and its candidate does not lead before it has left": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", viewOnly)
			lead(t, a).Release()
			view := a.View()
			viewhook.Enter(view)
			go func() { _ = a.Resign(context.Background()) }()
			sleep(4 * T)
			if view.ValueInFuture() || a.View().ValueInFuture() {
				t.Errorf("leads on: %v, leads again: %v", view.ValueInFuture(), a.View().ValueInFuture())
			}
			viewhook.Leave(view)
			sleep(3 * T)
			a.leads(t)
			a.stop()
		},
	}.run(t)
}

// A leadership that ends in one step with all its callbacks says why, whether it is lost, or given up and released.
func TestLostLeadershipSaysWhy(t *testing.T) {
	for cause, c := range map[error]struct {
		end func(t *testing.T, d *memory.Decider, a *member)
		to  le.Status
	}{
		le.ErrOusted:   {func(_ *testing.T, d *memory.Decider, _ *member) { d.Replace(rival(first + 9)) }, le.Following},
		le.ErrResigned: {func(t *testing.T, _ *memory.Decider, a *member) { go a.Resign(t.Context()) }, le.Draining},
	} {
		bubble(t, func(t *testing.T) {
			d, a := leader(t, func(c *config) {
				c.OnElected, c.OnOusting = func(context.Context, *le.TimeView) {}, nil
			})
			a.store.Inject(memory.Slow(time.Second))
			c.end(t, d, a)
			sleep(5 * time.Second)
			a.mu.Lock()
			defer a.mu.Unlock()
			if len(a.status) < 2 || a.status[1].From != le.Leading || a.status[1].To != c.to || !errors.Is(a.status[1].Cause, cause) || a.status[1].Number != first {
				t.Errorf("told of %+v, want its end by %q", a.status, cause)
			}
		})
	}
}

// What Config says of callbacks and of errors.
func TestContract(t *testing.T) {
	scenes{
		"OnElected: once a leadership, not while another callback runs": func(t *testing.T) {
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
		},
		"OnOusting: once for each OnElected, as soon as ctx was cancelled": func(t *testing.T) {
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
		},
		"what comes first is the cause, and OnOusting runs once": func(t *testing.T) {
			d, a := leader(t, func(c *config) {
				inner := c.OnElected
				c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); time.Sleep(10 * time.Second) }
			})
			must(t, le.StepDown(t.Context(), d, false))
			synctest.Wait()
			go a.Resign(t.Context())
			a.stop()
			synctest.Wait()
			d.Replace(rival(first + 1))
			<-a.Done()
			if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrResigned) || len(a.ousted) != 1 {
				t.Fatalf("cause %v, OnOusting %d times", r.cause, len(a.ousted))
			}
		},
		"a callback that ends its goroutine has returned": func(t *testing.T) {
			d, a := leader(t, func(c *config) {
				c.OnElected = func(context.Context, *le.TimeView) { runtime.Goexit() }
				c.OnOusting = func(context.Context) { runtime.Goexit() }
				c.LeaderChanged = func(context.Context, le.RaceEntry) { runtime.Goexit() }
			})
			a.quit()
			if !d.Entry().Vacant() {
				t.Fatal("not released")
			}
		},
		"LeaderChanged: each leadership and vacancy, in order": func(t *testing.T) {
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
			vacant := &le.RaceEntry{ElectionNumber: first + 1, Extension: 1, TermExpiry: time.Now(), TermLength: T, Incarnation: rival(first + 1).Incarnation}
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
		},
		"Acquire returns when the callbacks have, whatever hangs": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(1))
			a := join(t, d, "a", polled)
			synctest.Wait()
			release := make(chan struct{})
			a.store.Inject(memory.Hang(release))
			sleep(T)
			left := time.Now()
			a.quit()
			if took := time.Since(left); took > 200*time.Millisecond {
				t.Fatalf("stopping took %v while the store hangs", took)
			}
			if err := a.Wait(); !errors.Is(err, context.Canceled) {
				t.Fatalf("Wait says %v", err)
			}
			close(release)
		},
		"the cause of Start's ctx is that of all": func(t *testing.T) {
			cause := errors.New("shutting down for the night")
			ctx, cancel := context.WithCancelCause(t.Context())
			var got error
			c, err := le.Config{Decider: memory.NewDecider(), LeaderID: "a", OnElected: func(ctx context.Context, _ *le.TimeView) {
				<-ctx.Done()
				got = context.Cause(ctx)
			}}.Start(ctx)
			must(t, err)
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
		},
		"Resign in OnElected does not wait for itself": func(t *testing.T) {
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
		},
		"the values of Start's ctx reach every callback": func(t *testing.T) {
			type key struct{}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
			var got [3]any
			c, err := le.Config{
				Decider: memory.NewDecider(), LeaderID: "a",
				OnElected:     func(ctx context.Context, _ *le.TimeView) { got[0] = ctx.Value(key{}) },
				OnOusting:     func(ctx context.Context) { got[1] = ctx.Value(key{}) },
				LeaderChanged: func(ctx context.Context, _ le.RaceEntry) { got[2] = ctx.Value(key{}) },
			}.Start(ctx)
			must(t, err)
			sleep(time.Second)
			cancel()
			_ = c.Wait()
			if got != [3]any{"v", "v", "v"} {
				t.Fatalf("values %v", got)
			}
		},
		"Resign waits until what an acquisition won is released": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", faulty(memory.Slow(2*time.Second).On(memory.Write).Times(1)), polled)
			sleep(100 * time.Millisecond) // it has not landed
			must(t, a.Resign(t.Context()))
			if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first || a.count() > 0 {
				t.Errorf("the record is %+v after %d leaderships, want it won, and released", e, a.count())
			}
		},
		"Resign waits for one that did not happen for a term of its own, whatever it would have taken": func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(3)
			e.TermLength, e.TermExpiry = 10*T, time.Now().Add(-T)
			d.Replace(e)
			a := join(t, d, "a", faulty(memory.LoseRequests().On(memory.Write).Times(1)), polled)
			sleep(100 * time.Millisecond) // it was lost
			began := time.Now()
			must(t, a.Resign(t.Context()))
			if took := time.Since(began); took > T {
				t.Errorf("Resign took %v", took)
			}
		},
		"Wait returns when no Healthy runs any more": func(t *testing.T) {
			running, stuck := false, make(chan struct{})
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.Healthy = func(ctx context.Context) error {
					running = true
					<-ctx.Done()
					<-stuck
					running = false
					return ctx.Err()
				}
			})
			sleep(time.Second)
			a.stop()
			time.AfterFunc(time.Minute, func() { close(stuck) })
			<-a.Done()
			if running {
				t.Error("Wait returned while Healthy runs")
			}
		},
	}.run(t)
}

// OnOusting comes after OnElected, even if the news that another leads is here together with the answer
// by which a leadership begins.
func TestContractOnOustingComesSecond(t *testing.T) {
	before := 0
	for range 200 {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(4))
			const slow = 2 * time.Second
			var mu sync.Mutex
			var calls []string
			call := func(name string) { mu.Lock(); defer mu.Unlock(); calls = append(calls, name) }
			a := join(t, d, "a", func(c *config) {
				c.Decider.(*memory.Decider).Inject(memory.Slow(slow).On(memory.Write).Times(1))
				c.OnElected = func(context.Context, *le.TimeView) { call("OnElected") }
				c.OnOusting = func(context.Context) { call("OnOusting") }
			})
			time.Sleep(slow)
			d.Replace(rival(first + 1e6))
			sleep(time.Second)
			a.quit()
			if len(calls) > 0 && calls[0] == "OnOusting" {
				before++
			}
		})
	}
	if before > 10 { // two goroutines that begin one after the other may still do their first thing the other way round
		t.Errorf("OnOusting came first %d times", before)
	}
}

func TestRun(t *testing.T) {
	failed := errors.New("failed")
	run := func(t *testing.T, d *memory.Decider, ctx context.Context, job func(context.Context, *le.TimeView) error) error {
		t.Helper()
		return le.Config{Decider: d, LeaderID: "a", TermLength: T, MaxClockSkew: S}.Run(ctx, job)
	}
	scene(t, "once, released", func(t *testing.T) {
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
	scene(t, "job's error", func(t *testing.T) {
		d := memory.NewDecider()
		err := run(t, d, t.Context(), func(context.Context, *le.TimeView) error { return failed })
		if err != failed || !d.Entry().Vacant() {
			t.Fatalf("%v, record %+v", err, d.Entry())
		}
	})
	scene(t, "ousted", func(t *testing.T) {
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
	scene(t, "ctx ends before leading", func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := run(t, d, ctx, func(context.Context, *le.TimeView) error { t.Error("ran"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
	scene(t, "ctx ends under the job", func(t *testing.T) {
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
	scene(t, "Goexit", func(t *testing.T) {
		err := run(t, memory.NewDecider(), t.Context(), func(context.Context, *le.TimeView) error { runtime.Goexit(); return nil })
		if err == nil {
			t.Fatal("a job that never returned is no success")
		}
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
