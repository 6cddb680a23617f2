//go:build go1.25

package rules

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 3: a challenger waits for TermExpiry + S by its own clock, its very first
// attempt included.
func TestRule03ChallengerWaitsOutTermAndSkew(t *testing.T) {
	for _, name := range []string{"feed", "poll"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				held := rival(7)
				d.Replace(held)
				adjust := func(c *config) {}
				if name == "poll" {
					adjust = polled
				}
				sleep(T - time.Second) // the record is old news when b arrives
				b := join(t, d, "b", adjust)
				sleep(time.Until(held.TermExpiry.Add(S)) - time.Nanosecond)
				if n := len(b.opsSince(time.Time{}, le.OpAcquire)); n > 0 {
					t.Fatalf("%d writes before TermExpiry + S", n)
				}
				sleep(spread)
				b.leads(t)
				if got := b.View().ElectionNumber(); got != 8 {
					t.Fatalf("token %d, want 8", got)
				}
			})
		})
	}
}

// Rule 5: a vacant record is acquired at once, one's own too; and what was
// learned before it became acquirable is read again.
func TestRule05VacantAtOnceOwnAtOnceAfterReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(&le.RaceEntry{ElectionNumber: 3, Extension: 9, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"})
		start := time.Now()
		a := join(t, d, "a")
		synctest.Wait()
		a.leads(t)
		if r := a.leadership(t, 0); r.number != 4 || r.from != start {
			t.Fatalf("%v, want number 4 at once", r)
		}
		// The view ends, with the record still one's own; the store comes back.
		a.store.Inject(memory.LoseRequests())
		sleep(14 * time.Second)
		a.follows(t)
		a.store.Inject(nil)
		back := time.Now()
		sleep(3 * time.Second)
		a.leads(t)
		if since := a.leadership(t, 1).from.Sub(back); since >= 2500*time.Millisecond {
			t.Fatalf("one's own record was acquired only %v after the store came back", since)
		}
		ops := a.opsSince(back)
		if len(ops) < 2 || ops[0].Kind != le.OpRead || ops[1].Kind != le.OpAcquire {
			t.Fatalf("operations %+v, want a read before the write", ops)
		}
	})
}

// Rule 5: a record that was learned before it became acquirable, or learned as
// held by push alone, is read before it is acquired.
func TestRule05ReadsBeforeItCampaigns(t *testing.T) {
	long := rival(3)
	long.TermExpiry = time.Unix(0, 0)
	for name, e := range map[string]*le.RaceEntry{
		"held, long expired": long,
		"reserved":           {ElectionNumber: 3, Extension: 9, TermLength: T, Incarnation: "x", Successor: "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				if e.Vacant() {
					e.TermExpiry = time.Now().Add(5 * time.Second)
				}
				d.Replace(e)
				a := join(t, d, "a")
				sleep(6 * time.Second)
				a.leads(t)
				ops := a.opsSince(time.Time{})
				if len(ops) < 2 || ops[0].Kind != le.OpRead || ops[1].Kind != le.OpAcquire || ops[0].Start.Before(e.TermExpiry) {
					t.Fatalf("operations %+v, want a read past the end, then a write", ops)
				}
			})
		})
	}
}

// Rule 5: a record that comes along with a lost race is no older than the attempt. If its term has run out since, it is
// read again.
func TestRule05LostRaceIsAsOldAsItsAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		held.TermLength, held.TermExpiry = time.Second, time.Now().Add(time.Second)
		store := d.Handle()
		store.Inject(memory.Faults(func(memory.Op) memory.Fault {
			d.Replace(held) // wins the race
			return memory.Fault{AnswerDelay: 3 * time.Second}
		}).On(memory.Write).Times(1))
		begin := time.Now()
		a := join(t, d, "a", func(c *config) { c.Decider = store.Polled() })
		sleep(3*time.Second + spread)
		a.leads(t)
		var kinds []le.OpKind
		for _, op := range a.opsSince(begin) {
			kinds = append(kinds, op.Kind)
		}
		if want := []le.OpKind{le.OpRead, le.OpAcquire, le.OpRead, le.OpAcquire}; !slices.Equal(kinds, want) {
			t.Errorf("it has asked for %v, want %v", kinds, want)
		}
	})
}

// Rule 5: one's own record is not acquired while a callback still runs.
func TestRule05NoCampaignWhileCallbacksRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		a := join(t, d, "a", func(c *config) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
		})
		synctest.Wait()
		a.store.Inject(memory.LoseRequests())
		sleep(14 * time.Second)
		a.store.Inject(nil)
		sleep(10 * T)
		if n := a.count(); n != 1 || len(a.opsSince(time.Time{}, le.OpAcquire)) != 1 {
			t.Fatalf("%d leaderships while the first one's callback runs", n)
		}
		close(release)
		sleep(time.Second)
		a.leads(t)
	})
}

// Rule 10: with clocks at both ends of the bound, the views of successive leaders
// do not overlap in true time, and the gap between them is not larger than it
// must be.
func TestRule10SuccessiveViewsNeverOverlap(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new time.Duration
	}{{"slow leader, fast challenger", -S, S}, {"fast leader, slow challenger", S, -S}, {"no skew", 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", func(cfg *config) { cfg.Clock = clocks.NewOffset(nil, c.old) })
				synctest.Wait()
				b := join(t, d, "b", func(cfg *config) { cfg.Clock = clocks.NewOffset(nil, c.new) })
				sleep(20 * time.Second)
				a.leads(t)
				a.store.Inject(memory.LoseRequests())
				view := a.View()
				for !b.View().ValueInFuture() {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					if b.View().ValueInFuture() && view.ValueInFuture() {
						t.Fatal("two views are true at once")
					}
				}
				// a's view ended S before its TermExpiry by a's clock, b came S
				// after it by b's.
				trueEnd := view.Get().Add(-c.old)
				gap := b.leadership(t, 0).from.Sub(trueEnd)
				near(t, "the gap between the views", gap, 2*S+c.old-c.new+spread/2, spread/2)
				if gap < 0 {
					t.Fatalf("the views overlap by %v", -gap)
				}
			})
		})
	}
}

// Where replicas take turns, of which one lags, a write that was refused over what the
// lagging one has is not made over that again, however the polls and the pauses meet.
func TestRule05LaggingReplicaCostsOneWrite(t *testing.T) {
	for phase := range 40 {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(3)
			d.Replace(e)
			old := d.Entry()
			e.Extension, e.TermExpiry = 1, e.TermExpiry.Add(time.Second)
			d.Replace(e)
			refused := 0
			a := join(t, d, "a", polled, func(c *config) {
				c.PollInterval = time.Duration(150+phase*10) * time.Millisecond
				c.Decider = &replica{RaceDecider: c.Decider, stale: old.Clone}
				c.Trace = &le.Trace{StoreOp: func(op le.StoreOp) {
					if errors.Is(op.Err, le.ErrLostRace) {
						refused++
					}
				}}
			})
			sleep(2 * T)
			if a.leads(t); refused > 1 {
				t.Errorf("phase %d: %d writes were refused", phase, refused)
			}
		})
	}
}

// Rule 5: a term that was over long before a candidate started is nobody else's to wait for.
func TestRule05OverAtTheStart(t *testing.T) {
	for name, how := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				e := rival(2)
				e.TermExpiry = time.Now().Add(-time.Hour)
				d.Replace(e)
				a := join(t, d, "a", how)
				synctest.Wait()
				a.leads(t)
			})
		})
	}
}
