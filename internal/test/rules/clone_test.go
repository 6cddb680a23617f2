//go:build go1.26

package rules

import (
	"context"
	"errors"
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
	for style, adjust := range styles {
		scene(t, style, func(t *testing.T) {
			d := memory.NewDecider()
			clock := clocks.NewOffset(nil, 0)
			draw(t, clock)
			a := join(t, d, "worker", adjust, on(clock))
			draw(t, clock)
			b := join(t, d, "worker", adjust, on(clock))
			for range 60 * 10 {
				sleep(100 * time.Millisecond)
				if a.View().ValueInFuture() && b.View().ValueInFuture() {
					t.Fatalf("two views are true at once, with tokens %d and %d", a.View().ElectionNumber(), b.View().ElectionNumber())
				}
			}
			if a.count()+b.count() != 1 {
				t.Errorf("%d and %d leaderships in a minute, want one", a.count(), b.count())
			}
			if len(a.double)+len(b.double) == 0 {
				t.Error("nobody was told of the other process")
			}
			end(a, b)
		})
	}
}

// TestCloneOfALeader: a leader that finds its own leadership extended, and not by itself, is ousted.
func TestCloneOfALeader(t *testing.T) {
	for style, adjust := range styles {
		scene(t, style, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "worker", adjust)
			synctest.Wait()
			r := a.leadership(t, 0)
			sleep(T / 8)
			e := d.Entry()
			e.Extension++
			e.TermExpiry = e.TermExpiry.Add(T / 8)
			if _, err := d.Handle().WriteEntry(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				sleep(T / 200)
				if r.view.ValueInFuture() && style == "pushed" {
					t.Fatal("the view is true though another process extends the leadership")
				}
			}
			if cause := context.Cause(r.ctx); !errors.Is(cause, le.ErrOusted) || r.view.ValueInFuture() {
				t.Errorf("the leadership ended with %v, view %t, want ErrOusted", cause, r.view.ValueInFuture())
			}
			if len(a.double) != 1 {
				t.Errorf("told %d times of the other process, want once", len(a.double))
			}
			sleep(T / 4)
			if now := d.Entry(); now.ElectionNumber != e.ElectionNumber {
				t.Errorf("the record was taken before its term was over: %+v", now)
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
		must(t, a.Resign(t.Context()))
		sleep(2 * T)
		if after := d.Entry(); a.count() != 2 || after.Incarnation == before.Incarnation || after.Incarnation == "" {
			t.Errorf("%d leaderships, incarnations %q and %q", a.count(), before.Incarnation, after.Incarnation)
		}
	})
}
