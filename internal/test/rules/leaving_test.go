//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 9: leaving by choice: ctx first, then the callbacks with the lease kept,
// then the view, then the release.
func TestRule09DrainsBeforeItReleases(t *testing.T) {
	for _, how := range []string{"ctx", "Resign", "StepDown", "Transfer", "unhealthy"} {
		scene(t, how, func(t *testing.T) {
			d := memory.NewDecider()
			elected, ousting := make(chan struct{}), make(chan struct{})
			cause := errors.New("enough")
			var sick atomic.Bool
			var m *member
			ctx, cancel := context.WithCancelCause(t.Context())
			m = join(t, d, "a", func(c *config) {
				inner := c.OnElected
				c.DrainTimeout = 10 * time.Minute
				c.OnElected = func(ctx context.Context, v *le.TimeView) {
					inner(ctx, v)
					<-elected
				}
				c.OnOusting = func(context.Context) { <-ousting }
				c.Healthy = func(context.Context) error {
					if sick.Load() {
						return errors.New("sick")
					}
					return nil
				}
			})
			sleep(time.Second)
			r := m.leadership(t, 0)
			want := le.ErrResigned
			switch how {
			case "ctx":
				want = context.Canceled
				m.stop()
			case "Resign":
				go m.Resign(ctx)
			case "StepDown":
				must(t, le.StepDown(t.Context(), d, false))
			case "Transfer":
				must(t, le.Transfer(t.Context(), d, "b"))
			case "unhealthy":
				want = le.ErrUnhealthy
				sick.Store(true)
				sleep(6 * time.Second)
			}
			synctest.Wait()
			if !errors.Is(context.Cause(r.ctx), want) {
				t.Fatalf("cause %v, want %v", context.Cause(r.ctx), want)
			}
			for range 2 {
				sleep(time.Minute)
				if m.Status() != le.Draining || !r.view.ValueInFuture() || d.Entry().Vacant() {
					t.Fatalf("%v, view alive %v, record %+v: want the lease kept", m.Status(), r.view.ValueInFuture(), d.Entry())
				}
				select {
				case <-elected:
				default:
					close(elected)
				}
			}
			// OnElected has returned, OnOusting has not: still held. Look at
			// the view at the very moment of the release.
			alive := false
			m.store.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write && op.Entry.Vacant() {
					alive = r.view.ValueInFuture()
				}
				return memory.Fault{}
			})
			close(ousting)
			synctest.Wait()
			if !d.Entry().Vacant() {
				t.Fatalf("not released at once: %+v", d.Entry())
			}
			if alive || r.view.ValueInFuture() {
				t.Fatal("the view was alive when the record was released")
			}
			cancel(cause)
		})
	}
}

// Rule 9: callbacks that overrun DrainTimeout: the lease is not extended any
// more, the view ends truthfully, nothing is released under them.
func TestRule09DrainTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		var oustingEnded time.Time
		a := join(t, d, "a", func(c *config) {
			inner := c.OnElected
			c.DrainTimeout = 20 * time.Second
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
			c.OnOusting = func(ctx context.Context) { <-ctx.Done(); oustingEnded = time.Now() }
		})
		sleep(time.Second)
		left := time.Now()
		a.stop()
		sleep(20 * time.Second)
		if got := oustingEnded.Sub(left); got != 20*time.Second {
			t.Fatalf("OnOusting's ctx ended after %v, want DrainTimeout", got)
		}
		view := a.View()
		if !view.ValueInFuture() {
			t.Fatal("the lease was not kept for DrainTimeout")
		}
		sleep(time.Until(view.Get()) - time.Nanosecond)
		if !view.ValueInFuture() {
			t.Fatal("the view ended early")
		}
		sleep(time.Nanosecond)
		if view.ValueInFuture() {
			t.Fatal("the view was extended past DrainTimeout")
		}
		b := join(t, d, "b")
		sleep(T)
		b.leads(t)
		select {
		case <-a.Done():
			t.Fatal("stopped while a callback runs")
		default:
		}
		close(release)
		synctest.Wait()
		<-a.Done()
		b.leads(t)
	})
}

// OnOusting's ctx ends with DrainTimeout, to the moment, whatever else there is to wake up for.
func TestRule09OnOustingEndsToTheMoment(t *testing.T) {
	const drain = 2500 * time.Millisecond
	for name, end := range map[string]func(m *member, d *memory.Decider){
		"stopped": func(m *member, _ *memory.Decider) { m.stop() },
		"ousted":  func(_ *member, d *memory.Decider) { d.Replace(rival(first + 1)) },
	} {
		scene(t, name, func(t *testing.T) {
			var ended time.Time
			d, a := leader(t, func(c *config) {
				c.DrainTimeout = drain
				c.OnOusting = func(ctx context.Context) { <-ctx.Done(); ended = time.Now() }
			})
			left := time.Now()
			end(a, d)
			sleep(time.Minute)
			if took := ended.Sub(left); took != drain {
				t.Errorf("OnOusting's ctx ended after %v, want %v", took, drain)
			}
		})
	}
}

// Rule 9: a release that cannot be written is given up when the term has run
// out, and after 10 s at the latest: a supervisor that waits half a minute before it
// kills has not lost its patience. It is tried more than once until then, also with a
// store that hangs.
func TestRule09ReleaseGivenUp(t *testing.T) {
	for name, fault := range map[string]memory.Faults{"lost": memory.LoseRequests(), "hangs": memory.Slow(time.Hour)} {
		for _, term := range []time.Duration{5 * time.Second, T, 10 * time.Minute} {
			scene(t, fmt.Sprintf("%s, T=%v", name, term), func(t *testing.T) {
				d, a := leader(t, func(c *config) { c.TermLength = term })
				a.store.Inject(fault)
				begin := time.Now()
				end := d.Entry().TermExpiry
				a.quit()
				near(t, "giving up", time.Since(begin), min(end.Sub(begin), 10*time.Second), 200*time.Millisecond)
				if tries := len(a.opsSince(begin)); tries < 2 {
					t.Errorf("%d tries", tries)
				}
			})
		}
	}
}

// Rule 9: who stops, and how soon.
func TestRule09Stopping(t *testing.T) {
	scenes{
		"a standby whose acquisition hangs": func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.TermLength = 10 * time.Minute
				c.Decider.(*memory.Decider).Inject(memory.Slow(time.Hour).On(memory.Write))
			})
			sleep(time.Second)
			begin := time.Now()
			a.quit()
			if took := time.Since(begin); took > 10*time.Second+200*time.Millisecond {
				t.Errorf("stopping took %v", took)
			}
		},
		"whose acquisition was refused, and read back": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", faulty(memory.Always(memory.Fault{Err: le.ErrDenied}).On(memory.Write)), polled)
			sleep(T / 4)
			begin := time.Now()
			a.quit()
			if took := time.Since(begin); took > time.Second {
				t.Errorf("stopping took %v", took)
			}
		},
		"whose acquisition hangs, and may still land": func(t *testing.T) {
			d := memory.NewDecider()
			release := make(chan struct{})
			a := join(t, d, "a", faulty(memory.Hang(release).On(memory.Write).Times(1)), polled)
			sleep(100 * time.Millisecond)
			a.stop()
			sleep(5 * time.Second) // given up after 3.75 s
			close(release)
			<-a.Done()
			released(t, d, first)
		},
		"whose acquisition fails late, after a read that did not show it": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", faulty(memory.Always(memory.Fault{Hang: after(T / 3), Err: memory.ErrLost, Lands: true}).On(memory.Write).Times(1)), polled)
			sleep(time.Second)
			begin := time.Now()
			a.quit()
			if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first {
				t.Errorf("the record is %+v after %v, want it released", e, time.Since(begin))
			}
		},
		"whose wall clock was set back": func(t *testing.T) {
			d := memory.NewDecider()
			clock := clocks.NewOffset(nil, 0)
			a := join(t, d, "a", stayOn, func(c *config) { c.Clock = clock })
			sleep(time.Second)
			clock.Set(-7 * time.Hour)
			a.store.Inject(memory.Fail(errors.New("cut off")))
			a.stop()
			begin := time.Now()
			<-a.Done()
			if took := time.Since(begin); took > T+time.Second {
				t.Errorf("stopping took %v", took)
			}
		},
		"in a long term, while a call hangs": func(t *testing.T) {
			d, a := leader(t, func(c *config) { c.TermLength = time.Hour })
			release := make(chan struct{})
			defer close(release)
			a.store.Inject(memory.Hang(release).On(memory.Write).Times(1))
			sleep(30 * time.Minute) // its extension hangs
			began := time.Now()
			a.quit()
			if e := d.Entry(); !e.Vacant() || time.Since(began) > 10*time.Second {
				t.Errorf("stopped after %v; the record is %+v, want it released", time.Since(began), e)
			}
		},
		"the time for the release counts from the return of the callbacks": func(t *testing.T) {
			d, a := leader(t, func(c *config) {
				c.DrainTimeout = time.Minute
				c.OnOusting = func(context.Context) { time.Sleep(40 * time.Second) }
			})
			a.stop()
			sleep(39900 * time.Millisecond)
			a.store.Inject(memory.LoseRequests().On(memory.Write).Times(1)) // the first try
			<-a.Done()
			if !d.Entry().Vacant() {
				t.Errorf("left behind: %+v", d.Entry())
			}
		},
		"after an outage, however long its last pause would be": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", polled, func(c *config) { c.TermLength = 5 * time.Minute })
			sleep(100 * time.Second)
			a.store.Inject(memory.LoseRequests())
			sleep(140 * time.Second)
			failed := len(a.opsSince(time.Time{}))
			for len(a.opsSince(time.Time{})) == failed {
				sleep(time.Second)
			}
			a.leads(t)
			a.store.Inject(nil)
			begun := time.Now()
			a.quit()
			if took := time.Since(begun); !d.Entry().Vacant() || took > 2*time.Second {
				t.Errorf("left after %v with %+v, want it released at once", took, d.Entry())
			}
		},
	}.run(t)
}

// Rule 9: with a store that stays away, who stops waits for that doubt for half a term at most, and
// not at all when the term is over that the extension asked for.
func TestRule09ExtensionInDoubtWithoutAStore(t *testing.T) {
	for after, most := range map[time.Duration]time.Duration{0: T/2 + time.Second, T: time.Second} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", polled)
			synctest.Wait()
			a.leads(t)
			a.store.Inject(memory.LoseAnswers())
			for a.View().ValueInFuture() {
				sleep(100 * time.Millisecond)
			}
			sleep(100*time.Millisecond + after)
			begin := time.Now()
			a.quit()
			if took := time.Since(begin); took > most {
				t.Errorf("%v after its view's end it took %v to stop, want %v at most", after, took, most)
			}
		})
	}
}

// Rule 9: a candidate that stops while its acquisition is in flight awaits it,
// or reads it back, and releases what it won.
func TestRule09StopsWithAnAcquisitionInFlight(t *testing.T) {
	for name, fault := range map[string]memory.Fault{
		"awaited":         {AnswerDelay: 2 * time.Second},
		"abandoned":       {AnswerDelay: time.Hour},
		"read back":       {AnswerDelay: time.Second, Err: memory.ErrLost, Lands: true},
		"lands late":      {Late: 3 * time.Second, Delay: time.Hour, Err: memory.ErrLost},
		"lost on its way": {AnswerDelay: time.Second, Err: memory.ErrLost},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", faulty(memory.Always(fault).On(memory.Write).Times(1)), polled)
			sleep(100 * time.Millisecond)
			begin := time.Now()
			a.quit()
			if took := time.Since(begin); took > T/2+time.Second {
				t.Fatalf("stopping took %v, want at most T/2 and a round trip", took)
			}
			sleep(T)
			if e := d.Entry(); !e.Vacant() {
				t.Fatalf("left behind: %+v", e)
			}
			if a.count() != 0 {
				t.Fatal("OnElected was called by a campaign that was stopping")
			}
		})
	}
}

// Rule 15: whoever resigned, or was asked to step down, cools down for one term.
func TestRule15SitsOutOneTerm(t *testing.T) {
	for _, how := range []string{"Resign", "StepDown"} {
		scene(t, how, func(t *testing.T) {
			d, a := leader(t)
			begin := time.Now()
			var err error
			if how == "Resign" {
				err = a.Resign(t.Context())
			} else {
				err = le.StepDown(t.Context(), d, false)
			}
			must(t, err)
			synctest.Wait()
			if !d.Entry().Vacant() {
				t.Fatalf("not released: %+v", d.Entry())
			}
			sleep(T - time.Millisecond)
			a.follows(t)
			sleep(2 * time.Millisecond)
			a.leads(t)
			near(t, "cooldown", a.leadership(t, 1).from.Sub(begin), T, time.Millisecond)
		})
	}
}

// Rule 15: who resigned stays out for a term.
func TestRule15Cooldown(t *testing.T) {
	scenes{
		"from the release on": func(t *testing.T) {
			d, a := leader(t, polled)
			a.store.Inject(memory.Slow(3 * time.Second).On(memory.Write))
			must(t, a.Resign(t.Context()))
			begin := time.Now()
			if e := d.Entry(); !e.Vacant() {
				t.Fatalf("not released: %+v", e)
			}
			a.store.Inject(nil)
			sleep(T - time.Millisecond)
			a.follows(t)
			if n := len(a.opsSince(begin, le.OpAcquire)); n > 0 {
				t.Fatalf("%d writes within a term of the release", n)
			}
			sleep(2 * time.Millisecond)
			a.leads(t)
		},
		"though it did not lead": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			b := join(t, d, "b")
			sleep(time.Second)
			must(t, b.Resign(t.Context()))
			a.quit()
			sleep(T - time.Second)
			b.follows(t)
			sleep(2 * time.Second)
			b.leads(t)
		},
		"its end is no poll: a vacancy that was read is acquired then": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			b := join(t, d, "b", polled, func(c *config) { c.PollInterval = T * 7 / 10 })
			sleep(time.Second)
			a.quit()
			begin := time.Now()
			must(t, b.Resign(t.Context()))
			sleep(T + time.Millisecond)
			b.leads(t)
			near(t, "cooldown", b.leadership(t, 0).from.Sub(begin), T, time.Millisecond)
		},
		"unless an operator names it": func(t *testing.T) {
			d, a := leader(t)
			must(t, a.Resign(t.Context()))
			must(t, le.Transfer(t.Context(), d, "a"))
			synctest.Wait()
			a.leads(t)
		},
	}.run(t)
}

// Resign returns after a term, whatever the clock shows, if the store cannot be reached.
func TestContractResignWithoutAStore(t *testing.T) {
	for name, spoil := range map[string]func(*boundedOffset){
		"the clock is wrong for good": func(c *boundedOffset) { c.bound.bound.Store(int64(clocks.Unbounded)) },
		"the clock was set back":      func(c *boundedOffset) { c.Set(-time.Hour) },
	} {
		scene(t, name, func(t *testing.T) {
			clock := boundedOffset{clocks.NewOffset(nil, 0), &boundedClock{}}
			clock.bound.bound.Store(int64(time.Millisecond))
			_, a := leader(t, on(clock))
			a.store.Inject(memory.Fail(errors.New("cut off")))
			spoil(&clock)
			sleep(T / 2)
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*T)
			defer cancel()
			err := a.Resign(ctx)
			if took := time.Since(begun); err != nil || took > T {
				t.Errorf("returned after %v: %v", took, err)
			}
			a.follows(t)
		})
	}
}

// Rule 18, where the request comes when the view is over, and the term is not: it is
// released to whom the operator asked for, and not claimed again.
func TestRule18RequestAfterTheView(t *testing.T) {
	for name, ask := range map[string]func(context.Context, le.RaceDecider) error{
		"StepDown": func(ctx context.Context, d le.RaceDecider) error { return le.StepDown(ctx, d, false) },
		"Transfer": func(ctx context.Context, d le.RaceDecider) error { return le.Transfer(ctx, d, "c") },
	} {
		scene(t, name, func(t *testing.T) {
			d, a := leader(t, func(c *config) {
				elected := c.OnElected
				c.OnElected = func(ctx context.Context, v *le.TimeView) {
					elected(ctx, v)
					time.Sleep(800 * time.Millisecond) // until the term is nearly over
				}
			})
			c := join(t, d, "c")
			a.leads(t)
			a.store.Inject(memory.Fail(errors.New("cut off")))
			sleep(T - S - 500*time.Millisecond) // the view ends at 14 s
			a.follows(t)
			must(t, ask(t.Context(), d))
			a.store.Inject(nil)
			sleep(2 * time.Second)
			if c.leads(t); a.count() != 1 {
				t.Errorf("a had %d leaderships", a.count())
			}
		})
	}
}

// released fails unless the record is vacant and the leadership that it names is the given one.
func released(t *testing.T, d *memory.Decider, number le.ElectionNumber) {
	t.Helper()
	if e := d.Entry(); !e.Vacant() || e.ElectionNumber != number {
		t.Errorf("the record is %+v, want leadership %d released", e, number)
	}
}

// Rule 9: a stale read does not settle what became of an acquisition whose answer was lost. Who stops, resigns or
// makes one try reads again, and releases what it has won.
func TestRule09StaleReadSettlesNothing(t *testing.T) {
	for _, how := range []string{"stops", "resigns", "tries once"} {
		scene(t, how, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(7))
			before, err := d.ReadCurrent(t.Context())
			must(t, err)
			lags := false // the next read is answered by a replica that does
			handle := d.Handle()
			store := &lying{handle.Polled(), func(e *le.RaceEntry, err error) (*le.RaceEntry, error) {
				if lags {
					lags, e = false, before.Clone()
				}
				return e, err
			}}
			handle.Inject(func(op memory.Op) (f memory.Fault) {
				if op.Kind == memory.Write && !op.Entry.Vacant() {
					lags = true
					f.Err, f.Lands, f.AnswerDelay = memory.ErrLost, true, 100*time.Millisecond
				}
				return f
			})
			if how == "tries once" {
				c := le.Config{Decider: store, LeaderID: "a", TermLength: T, MaxClockSkew: S, Logger: slog.New(slog.DiscardHandler)}
				if _, err := c.TryAcquire(t.Context()); err == nil {
					t.Error("it leads")
				}
				released(t, d, 8)
				return
			}
			a := join(t, d, "a", func(c *config) { c.Decider = store })
			sleep(50 * time.Millisecond) // its acquisition has landed
			if how == "stops" {
				a.quit()
			} else {
				must(t, a.Resign(t.Context()))
			}
			released(t, d, 8)
		})
	}
}
