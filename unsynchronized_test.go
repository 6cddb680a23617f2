package leaderelection_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func unsynchronized(c *le.Config) { c.Unsynchronized = true }

// Clocks that are hours apart: a challenger waits a whole term and the allowance for
// drift from when it saw the last extension, and then leads.
func TestUnsynchronizedFailOver(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": 3 * time.Hour, "behind": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", unsynchronized, on(clocks.NewOffset(nil, -time.Hour)))
				sleep(time.Second)
				b := join(t, d, "b", unsynchronized, on(clocks.NewOffset(nil, offset)))
				sleep(10 * T)
				a.leads(t)
				if b.count() > 0 {
					t.Fatal("b led as well")
				}
				r, last := a.reign(t, 0), d.Entry()
				if !last.Unsynchronized {
					t.Errorf("the record %+v does not say that its clock means nothing", last)
				}
				var written time.Time
				a.note(func() { written = a.ops[len(a.ops)-1].Start.Add(time.Hour) })
				a.store.Inject(memory.Fail(errors.New("cut off")))
				for !b.View().ValueInFuture() && time.Since(written) < 3*T {
					sleep(time.Millisecond)
					if a.View().ValueInFuture() && b.View().ValueInFuture() {
						t.Fatal("two views at once")
					}
				}
				near(t, "the fail-over, from the last extension,", time.Since(written), T+S, 5*time.Millisecond)
				near(t, "a's view, from the same,", r.done.Sub(written), T-S, time.Millisecond)
			})
		})
	}
}

// Where MaxClockSkew is smaller than a hundredth of the term, that is the allowance.
func TestUnsynchronizedAllowance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.TermLength = time.Minute
		d.Replace(e)
		begin := time.Now()
		b := join(t, d, "b", unsynchronized, func(c *le.Config) { c.MaxClockSkew = 0 })
		for b.count() == 0 {
			sleep(time.Millisecond)
		}
		near(t, "the wait", time.Since(begin), time.Minute+600*time.Millisecond, time.Millisecond)
	})
}

// The term is counted from the answer that showed the change: the write may have
// begun after the read did.
func TestUnsynchronizedWaitsFromTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(3))
		b := join(t, d, "b", unsynchronized, func(c *le.Config) { c.PollInterval = 5 * time.Second }, func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{Delay: 3 * time.Second}).On(memory.Read).Times(2))
		}, polled)
		sleep(6 * time.Second) // a second read is on its way, begun at 5 s
		changed := rival(3)
		changed.Extension = 1
		d.Replace(changed)
		written := time.Now()
		for b.count() == 0 {
			sleep(time.Millisecond)
		}
		if waited := b.opsSince(time.Time{}, le.OpAcquire)[0].Start.Sub(written); waited < T+S {
			t.Errorf("claimed %v after the record had changed, want not before a term and the allowance", waited)
		}
	})
}

// Candidates that trust their clocks go by the record's mark, whichever way the
// leader's clock is wrong.
func TestUnsynchronizedMarkBindsAll(t *testing.T) {
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", unsynchronized, on(clocks.NewOffset(nil, offset)))
				sleep(time.Second)
				b := join(t, d, "b")
				sleep(5 * T)
				a.leads(t)
				if b.count() > 0 {
					t.Fatal("b led as well")
				}
				a.store.Inject(memory.Fail(errors.New("cut off")))
				sleep(T + S)
				b.leads(t)
				if e := d.Entry(); e.Unsynchronized {
					t.Error("b's record bears the mark, though its clock can be trusted")
				}
			})
		})
	}
}

// One who trusts no clock waits by its own also where the leader trusts its clock.
func TestUnsynchronizedChallengerOfASynchronizedLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Second)
		b := join(t, d, "b", unsynchronized, on(clocks.NewOffset(nil, time.Hour)))
		sleep(5 * T)
		a.leads(t)
		if b.count() > 0 {
			t.Fatal("b led as well")
		}
	})
}

// The leader's own wall clock ends the view where it jumps: ahead, since that is what
// a suspend looks like, and back by more than the allowance, since that would hide
// one. The record is claimed again at once. A small step changes nothing, and the
// records keep their order.
func TestUnsynchronizedLeadersOwnClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", unsynchronized, on(clock))
		sleep(time.Second)
		r, last := a.reign(t, 0), d.Entry()
		for i := range 10 {
			clock.Set(-time.Duration(i) * S)
			sleep(7 * time.Second)
			e := d.Entry()
			if e.Compare(last) <= 0 || !e.TermExpiry.After(last.TermExpiry) {
				t.Fatalf("extended %v by %v", last, e)
			}
			last = e
		}
		if a.leads(t); a.count() != 1 {
			t.Fatalf("%d reigns", a.count())
		}
		clock.Set(clock.Offset() - time.Hour)
		if r.view.ValueInFuture() {
			t.Error("the view goes on though the wall clock was set back: it would not show a suspend")
		}
		sleep(time.Second)
		if a.leads(t); a.count() != 2 {
			t.Fatalf("%d reigns", a.count())
		}
		r = a.reign(t, 1)
		clock.Set(clock.Offset() + time.Hour)
		if r.view.ValueInFuture() {
			t.Error("the view goes on though the wall clock jumped ahead: the machine may have been suspended")
		}
		sleep(time.Second)
		if !errors.Is(context.Cause(r.ctx), le.ErrExpired) {
			t.Errorf("cause %v", context.Cause(r.ctx))
		}
	})
}

// The view ends by the monotonic clock, whatever the wall clock says.
func TestUnsynchronizedViewEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", unsynchronized, on(clock))
		synctest.Wait()
		a.store.Inject(memory.Fail(errors.New("cut off")))
		clock.Set(-S)
		sleep(T - S - 1)
		a.leads(t)
		sleep(1)
		a.follows(t)
	})
}

// A reservation is waited for by the monotonic clock too.
func TestUnsynchronizedReservation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.LeaderID, e.Successor, e.Unsynchronized = "", "c", true
		e.TermExpiry = time.Now().Add(-time.Hour)
		d.Replace(e)
		a := join(t, d, "a", unsynchronized)
		sleep(T - 1)
		if a.count() > 0 {
			t.Fatal("did not leave the record to the Successor for a term")
		}
		sleep(2)
		a.leads(t)
	})
}

// An observer tells of a lapse when it has seen no change for a term and the
// allowance, not before and not by its wall clock.
func TestUnsynchronizedLapse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", unsynchronized, on(clocks.NewOffset(nil, -time.Hour)))
		var lapsed time.Time
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			w := le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Lapsed: func(context.Context, le.RaceEntry) { lapsed = time.Now() }}
			done <- w.Watch(ctx, func(context.Context, le.RaceEntry) {})
		}()
		sleep(5 * T)
		if !lapsed.IsZero() {
			t.Fatal("told of a lapse while the leader leads")
		}
		sleep(7*time.Second - time.Since(time.Now().Truncate(7*time.Second)))
		a.store.Inject(memory.Fail(errors.New("cut off")))
		cut := time.Now()
		sleep(T + S)
		if lapsed.IsZero() || lapsed.Sub(cut) < T+S-7*time.Second {
			t.Errorf("lapsed at %v, cut off at %v", lapsed, cut)
		}
		cancel()
		<-done
	})
}

// An operator reaches a leader whose clock says that its term is long over.
func TestUnsynchronizedTransfer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", unsynchronized, on(clocks.NewOffset(nil, -time.Hour)))
		b := join(t, d, "b", unsynchronized)
		sleep(T)
		was, next := a, b
		if b.View().ValueInFuture() {
			was, next = b, a
		}
		if err := le.Transfer(t.Context(), d.Handle(), next.id); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		next.leads(t)
		was.follows(t)
	})
}
