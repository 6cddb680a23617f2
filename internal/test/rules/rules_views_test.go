//go:build go1.25

package rules

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 1: TermExpiry is counted from before the request, and never goes back
// within a leadership, though the clock does.
func TestRule01TermExpiryNeverShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		start := time.Now()
		a := join(t, d, "a", func(c *config) {
			c.Clock = clock
			c.Decider.(*memory.Decider).Inject(memory.Slow(2 * time.Second)) // the feed, too: news is no shortcut
		}, stayOn)
		sleep(9500 * time.Millisecond)
		a.leads(t)
		// The write began when the feed's first record had come, at 2 s.
		first := d.Entry().TermExpiry
		if want := start.Add(2*time.Second + T); !first.Equal(want) {
			t.Fatalf("TermExpiry is %v after the start, want %v: the time before the request, not after", first.Sub(start), want.Sub(start))
		}
		// The next extension is being written, asked for at 9 s. Set the clock
		// back by more than a term grows between two extensions.
		clock.Set(-20 * time.Second)
		last, number := d.Entry().TermExpiry, d.Entry().ElectionNumber
		for range 100 {
			sleep(500 * time.Millisecond)
			e := d.Entry()
			if e.ElectionNumber == number && e.TermExpiry.Before(last) {
				t.Fatalf("TermExpiry went back from %v to %v within a leadership", last, e.TermExpiry)
			}
			if e.ElectionNumber == number {
				last = e.TermExpiry
			}
		}
	})
}

// Rule 2: the view ends S before the term, and moves only with a confirmed
// write.
func TestRule02ViewEndsBeforeTheTermAndMovesWhenConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		r := a.leadership(t, 0)
		if got, want := r.view.Get(), d.Entry().TermExpiry.Add(-S); !got.Equal(want) {
			t.Fatalf("the view ends at %v, want TermExpiry - S = %v", got, want)
		}
		before := r.view.Get()
		hang := make(chan struct{})
		a.store.Inject(memory.Hang(hang))
		sleep(7*time.Second + time.Millisecond) // an extension is on its way
		if !r.view.Get().Equal(before) {
			t.Fatal("the view moved before the write was confirmed")
		}
		a.store.Inject(nil)
		close(hang)
		synctest.Wait()
		if got, want := r.view.Get(), before.Add(7*time.Second); !got.Equal(want) {
			t.Fatalf("the view ends at %v after the confirmation, want %v", got, want)
		}
	})
}

// Rule 2: a wall clock that is set back does not lengthen the view: the
// monotonic end holds.
func TestRule02WallClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock })
		synctest.Wait()
		r := a.leadership(t, 0)
		hang := make(chan struct{})
		defer close(hang)
		a.store.Inject(memory.Hang(hang))
		clock.Set(-time.Hour)
		sleep(14*time.Second - time.Nanosecond)
		if !r.view.ValueInFuture() {
			t.Fatal("the view ended early")
		}
		sleep(time.Nanosecond)
		if r.view.ValueInFuture() {
			t.Fatal("the view outlived its monotonic end: the wall clock was set back")
		}
		if !errors.Is(context.Cause(r.ctx), le.ErrExpired) {
			t.Fatalf("cause is %v, want ErrExpired", context.Cause(r.ctx))
		}
	})
}

// Rule 2: where the clock was set back so far that an extension cannot make the
// term grow, it does not make the view grow either.
func TestRule02NoGrowthWithoutALongerTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock }, stayOn)
		synctest.Wait()
		r, first := a.leadership(t, 0), d.Entry().TermExpiry
		sleep(6 * time.Second)
		clock.Set(-time.Hour)
		sleep(8*time.Second - time.Nanosecond)
		if e := d.Entry(); e.Extension == 0 || !e.TermExpiry.Equal(first) {
			t.Fatalf("record %+v, want an extension that kept TermExpiry", e)
		}
		if !r.view.ValueInFuture() {
			t.Fatal("the view ended early")
		}
		sleep(time.Nanosecond)
		if r.view.ValueInFuture() {
			t.Fatal("the view outlived the record's term: others go by TermExpiry")
		}
	})
}

// Rule 2: the same where the write that first asked for that term never arrived.
func TestRule02NoGrowthByALaterAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock }, stayOn)
		sleep(6 * time.Second)
		r := a.leadership(t, 0)
		a.store.Inject(memory.LoseRequests().On(memory.Write).Times(1))
		sleep(1100 * time.Millisecond) // asked at 7 s for a term until 22 s; lost
		clock.Set(-time.Hour)
		sleep(3 * time.Second) // asked again for the same term, confirmed
		if want := time.Now().Add(-10100 * time.Millisecond).Add(22 * time.Second); !d.Entry().TermExpiry.Equal(want) {
			t.Fatalf("TermExpiry %v, want %v", d.Entry().TermExpiry, want)
		}
		a.store.Inject(memory.LoseRequests())
		sleep(10900*time.Millisecond - time.Nanosecond)
		if !r.view.ValueInFuture() {
			t.Fatal("the view ended early")
		}
		sleep(time.Nanosecond)
		if r.view.ValueInFuture() {
			t.Fatal("the view is counted from the later attempt")
		}
	})
}

// Rule 2: a machine that was suspended, so that its monotonic clock stood still,
// has its view ended by the wall clock.
func TestRule02Suspended(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock })
		synctest.Wait()
		r := a.leadership(t, 0)
		sleep(3 * time.Second)
		// To a machine, waking up looks like a wall clock that jumped ahead.
		clock.Set(time.Minute)
		if r.view.ValueInFuture() {
			t.Fatal("the view is alive a minute after its end")
		}
		sleep(time.Second)
		if !errors.Is(context.Cause(r.ctx), le.ErrExpired) {
			t.Fatalf("1 s after the resume ctx has the cause %v, want ErrExpired", context.Cause(r.ctx))
		}
	})
}

// Rule 2: a view seen false once is false for ever, also when its candidate is
// elected again.
func TestRule02LatchAndOneViewPerLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock })
		synctest.Wait()
		old := a.leadership(t, 0)
		clock.Set(15 * time.Second)
		if old.view.ValueInFuture() {
			t.Fatal("alive past its end")
		}
		clock.Set(0)
		if old.view.ValueInFuture() {
			t.Fatal("the view came back to life when the clock was set back")
		}
		sleep(time.Minute)
		a.leads(t)
		if a.count() < 2 {
			t.Fatal("not elected again")
		}
		if old.view.ValueInFuture() || a.View() == old.view {
			t.Fatal("the old leadership's view lives on in the new one")
		}
		if old.number != first || old.view.ElectionNumber() != first || a.View().ElectionNumber() <= first {
			t.Fatalf("numbers %d and %d: each view keeps its own", old.view.ElectionNumber(), a.View().ElectionNumber())
		}
	})
}

// stuck is a slog.Handler that never returns until it is released.
type stuck struct{ release chan struct{} }

func (h stuck) Enabled(context.Context, slog.Level) bool  { <-h.release; return false }
func (h stuck) Handle(context.Context, slog.Record) error { <-h.release; return nil }
func (h stuck) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h stuck) WithGroup(string) slog.Handler             { return h }

// Rule 13: nothing delays the end of the leader's ctx: not the store, not user
// code.
func TestRule13CtxEndsWithTheViewWhateverHangs(t *testing.T) {
	hooks := map[string]func(c *config, release chan struct{}){
		"store only": func(*config, chan struct{}) {},
		"Healthy": func(c *config, release chan struct{}) {
			asked := false
			c.Healthy = func(context.Context) error {
				if asked {
					<-release
				}
				asked = true
				return nil
			}
		},
		"LeaderChanged": func(c *config, release chan struct{}) {
			c.LeaderChanged = func(context.Context, le.RaceEntry) { <-release }
		},
		"Logger": func(c *config, release chan struct{}) { c.Logger = slog.New(stuck{release}) },
		"Trace": func(c *config, release chan struct{}) {
			c.Trace = &le.Trace{
				StoreOp:       func(le.StoreOp) { <-release },
				StatusChanged: func(le.StatusChange) { <-release },
			}
		},
		"OnElected": func(c *config, release chan struct{}) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
		},
	}
	for name, hook := range hooks {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				release := make(chan struct{})
				a := join(t, d, "a", func(c *config) { hook(c, release) })
				synctest.Wait()
				r := a.leadership(t, 0)
				a.store.Inject(memory.Hang(release)) // and it ignores its ctx
				end := r.view.Get()
				<-r.ctx.Done()
				if !time.Now().Equal(end) && name != "Healthy" {
					t.Errorf("ctx ended at %v, its view at %v", time.Now(), end)
				}
				if time.Now().After(end) {
					t.Errorf("ctx outlived its view by %v", time.Since(end))
				}
				time.Sleep(time.Until(end))
				if r.view.ValueInFuture() {
					t.Error("the view is alive after its end")
				}
				close(release)
				a.quit()
			})
		})
	}
}
