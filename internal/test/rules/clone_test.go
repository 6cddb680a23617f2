//go:build go1.26

package rules

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Two processes may be restored from one snapshot of a machine (Lambda SnapStart, a VM that was cloned
// while it ran, CRIU). They have one LeaderID, one memory, and the same random numbers ahead of them.

// draw has the campaigns of that clock draw the same random numbers again, from their next look at it on.
func draw(t *testing.T, clock *clocks.Offset) {
	t.Helper()
	synctest.Wait()
	cryptotest.SetGlobalRandom(t, 7)
	clock.Set(0)
}

// end stops the campaigns before the random numbers are restored: what runs draws them still.
func end(all ...*member) {
	for _, m := range all {
		m.quit()
	}
}

// TestCloneOfAStandby: nothing that a standby makes up before it acquires is taken for its own mark.
func TestCloneOfAStandby(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			clock := clocks.NewOffset(nil, 0)
			adjust := func(c *config) {
				c.Clock = clock
				if polled {
					c.Decider = c.Decider.(*memory.Decider).Polled()
				}
			}
			draw(t, clock)
			a := join(t, d, "worker", adjust)
			draw(t, clock)
			b := join(t, d, "worker", adjust)
			for range 60 * 10 {
				time.Sleep(100 * time.Millisecond)
				if a.View().ValueInFuture() && b.View().ValueInFuture() {
					t.Fatalf("polled %t: two views are true at once, with tokens %d and %d", polled, a.View().ElectionNumber(), b.View().ElectionNumber())
				}
			}
			if a.count()+b.count() != 1 {
				t.Errorf("polled %t: %d and %d leaderships in a minute, want one", polled, a.count(), b.count())
			}
			if len(a.doubles())+len(b.doubles()) == 0 {
				t.Errorf("polled %t: nobody was told of the other process", polled)
			}
			end(a, b)
		})
	}
}

// TestCloneMakesUpTheSame: even if a clone draws the same random numbers for its acquisition, its
// record is another's. It is waited for, and it ousts.
func TestCloneMakesUpTheSame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		draw(t, clock)
		a := join(t, d, "worker", func(c *config) { c.Clock = clock })
		synctest.Wait()
		led := d.Entry()
		a.store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: errors.New("cut off")} })
		b := join(t, d, "worker", func(c *config) { c.Clock = clock })
		time.Sleep(T)
		draw(t, clock)
		time.Sleep(2 * S)
		if e := d.Entry(); b.Status() != le.Leading || e.Incarnation != led.Incarnation || e.WriteID != led.WriteID || e.ElectionNumber <= led.ElectionNumber {
			t.Fatalf("the test is wrong: %v, record %+v", b.Status(), e)
		}
		a.store.Inject(nil)
		for range 60 * 10 {
			time.Sleep(100 * time.Millisecond)
			if a.View().ValueInFuture() {
				t.Fatalf("a leads with token %d beside b, with %d", a.View().ElectionNumber(), b.View().ElectionNumber())
			}
		}
		if b.count() != 1 || b.Status() != le.Leading {
			t.Errorf("b has had %d leaderships, and is %v", b.count(), b.Status())
		}
		if len(a.doubles()) == 0 {
			t.Error("a was not told of the other process")
		}
		end(a, b)
	})
}

// TestCloneOfALeader: a leader that finds its own leadership extended, and not by itself, is ousted.
func TestCloneOfALeader(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "worker", func(c *config) {
				if polled {
					c.Decider = c.Decider.(*memory.Decider).Polled()
				}
			})
			synctest.Wait()
			r := a.leadership(t, 0)
			time.Sleep(T / 8)
			e := d.Entry()
			e.Extension++
			e.TermExpiry = e.TermExpiry.Add(T / 8)
			if _, err := d.Handle().WriteEntry(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				time.Sleep(T / 200)
				if r.view.ValueInFuture() && !polled {
					t.Fatal("the view is true though another process extends the leadership")
				}
			}
			if cause := context.Cause(r.ctx); !errors.Is(cause, le.ErrOusted) || r.view.ValueInFuture() {
				t.Errorf("polled %t: the leadership ended with %v, view %t, want ErrOusted", polled, cause, r.view.ValueInFuture())
			}
			if len(a.doubles()) != 1 {
				t.Errorf("polled %t: told %d times of the other process, want once", polled, len(a.doubles()))
			}
			time.Sleep(T / 4)
			if now := d.Entry(); now.ElectionNumber != e.ElectionNumber {
				t.Errorf("polled %t: the record was taken before its term was over: %+v", polled, now)
			}
		})
	}
}

// TestCloneInTheSameTick: two clones of a leader, or of the process that led last, write in the same
// tick of their clocks. Only the WriteID tells which of the two writes has happened.
func TestCloneInTheSameTick(t *testing.T) {
	for _, outage := range []time.Duration{0, 2 * T} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "worker")
			synctest.Wait()
			if outage > 0 { // its view ends, and its record stays its own
				a.store.Inject(memory.LoseRequests())
				sleep(outage)
			}
			var cloned atomic.Bool
			a.store.Inject(memory.Faults(func(op memory.Op) memory.Fault {
				e := op.Entry
				e.WriteID, e.Token = "the clone's", nil
				d.Replace(e)
				cloned.Store(true)
				return memory.Fault{}
			}).On(memory.Write).Times(1))
			for !cloned.Load() {
				sleep(T / 100)
			}
			end := d.Entry().TermExpiry
			for ; time.Now().Before(end); sleep(T / 100) {
				if a.View().ValueInFuture() {
					t.Fatalf("after an outage of %v: the view is true, by the write of another", outage)
				}
			}
			if len(a.doubles()) == 0 {
				t.Errorf("after an outage of %v: it was not told of the other process", outage)
			}
		})
	}
}

// TestIncarnationOfEachLeadership: a process that leads twice has two.
func TestIncarnationOfEachLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		before := d.Entry()
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * T)
		if after := d.Entry(); a.count() != 2 || after.Incarnation == before.Incarnation || after.Incarnation == "" {
			t.Errorf("%d leaderships, incarnations %q and %q", a.count(), before.Incarnation, after.Incarnation)
		}
	})
}
