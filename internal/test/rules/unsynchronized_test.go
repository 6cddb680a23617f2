//go:build go1.25

package rules

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func unsynchronized(c *config) { c.ClockPolicy = le.Unsynchronized }

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
				r, last := a.leadership(t, 0), d.Entry()
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
				near(t, "the fail-over, from the last extension,", time.Since(written), T+S+spread/2, spread/2+5*time.Millisecond)
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
		b := join(t, d, "b", unsynchronized, func(c *config) { c.MaxClockSkew = time.Microsecond })
		for b.count() == 0 {
			sleep(time.Millisecond)
		}
		near(t, "the wait", time.Since(begin), time.Minute+600*time.Millisecond+spread/2, spread/2+time.Millisecond)
	})
}

// The term is counted from the answer that showed the change: the write may have
// begun after the read did.
func TestUnsynchronizedWaitsFromTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(3))
		b := join(t, d, "b", unsynchronized, func(c *config) { c.PollInterval = 5 * time.Second }, func(c *config) {
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
		r, last := a.leadership(t, 0), d.Entry()
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
			t.Fatalf("%d leaderships", a.count())
		}
		clock.Set(clock.Offset() - time.Hour)
		if r.view.ValueInFuture() {
			t.Error("the view goes on though the wall clock was set back: it would not show a suspend")
		}
		sleep(time.Second)
		if a.leads(t); a.count() != 2 {
			t.Fatalf("%d leaderships", a.count())
		}
		r = a.leadership(t, 1)
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

// A wall clock that is set back hides the same time of a suspend, during which the
// monotonic one stands still: so the view ends when the wall clock says that more than
// the allowance is left than the monotonic one does.
func TestUnsynchronizedSetBackThenSuspended(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := &stalling{Offset: clocks.NewOffset(nil, 0)}
		a := join(t, d, "a", unsynchronized, on(clock))
		synctest.Wait()
		b := join(t, d, "b", unsynchronized)
		t.Cleanup(clock.resume)
		sleep(6 * time.Second) // an extension is due at 7 s
		a.leads(t)
		view := a.View()
		clock.Set(-4 * time.Second) // less than has passed since the last write
		clock.suspend()
		a.store.Inject(memory.Fail(errors.New("cut off")))
		for range 300 {
			sleep(100 * time.Millisecond)
			if view.ValueInFuture() && b.View().ValueInFuture() {
				t.Fatalf("two views at once after %v", clock.Now())
			}
		}
	})
}

// The same while an acquisition is under way: what landed, and is answered after the wall clock
// was set back and the machine suspended, begins no leadership. (The model found that it did.)
func TestUnsynchronizedSetBackThenSuspendedAcquiring(t *testing.T) {
	for name, pass := range map[string]func(*stalling){
		"it looks at its clocks between": func(clock *stalling) {
			clock.Set(-14500 * time.Millisecond)
			sleep(1500 * time.Millisecond)
			clock.suspend()
			sleep(14500 * time.Millisecond)
			clock.resume()
		},
		"set back further before it looks": func(clock *stalling) {
			sleep(1500 * time.Millisecond)
			clock.suspend()
			sleep(14500 * time.Millisecond)
			clock.Set(-20 * time.Second)
			clock.resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				clock := &stalling{Offset: clocks.NewOffset(nil, 0)}
				a := join(t, d, "a", unsynchronized, on(clock), func(c *config) {
					c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: 16200 * time.Millisecond}).On(memory.Write).Times(1))
				}, polled)
				sleep(time.Millisecond)
				b := join(t, d, "b", unsynchronized)
				t.Cleanup(clock.resume)
				sleep(100 * time.Millisecond)
				pass(clock)
				for range 300 {
					sleep(100 * time.Millisecond)
					if a.View().ValueInFuture() && b.View().ValueInFuture() {
						t.Fatalf("two views at once after %v: of leaderships %d and %d", clock.Now(), a.View().ElectionNumber(), b.View().ElectionNumber())
					}
				}
			})
		})
	}
}

// The other way round, and also while an acquisition is under way: what a suspend has
// cost is remembered when the wall clock is set back later.
func TestUnsynchronizedSuspendedThenSetBack(t *testing.T) {
	for name, acquiring := range map[string]time.Duration{"leading": 0, "acquiring": 6700 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				clock := &stalling{Offset: clocks.NewOffset(nil, 0)}
				a := join(t, d, "a", unsynchronized, on(clock), func(c *config) {
					c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: acquiring}).On(memory.Write).Times(1))
				})
				sleep(time.Millisecond)
				b := join(t, d, "b", unsynchronized)
				t.Cleanup(clock.resume)
				sleep(100 * time.Millisecond)
				clock.suspend()
				sleep(5 * time.Second)
				clock.resume()
				sleep(1500 * time.Millisecond)
				clock.Set(-4500 * time.Millisecond)
				sleep(200 * time.Millisecond)
				a.store.Inject(memory.Fail(errors.New("cut off")))
				view := a.View()
				for range 200 {
					sleep(100 * time.Millisecond)
					if view.ValueInFuture() && b.View().ValueInFuture() {
						t.Fatalf("two views at once after %v", clock.Now())
					}
				}
				b.leads(t)
			})
		})
	}
}

// Set-backs within the allowance, each in time before a suspend of the same length, hide none of
// them, however many there are.
func TestUnsynchronizedSetBackAgainAndAgain(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const by = 900 * time.Millisecond
				d := memory.NewDecider()
				clock := &stalling{Offset: clocks.NewOffset(nil, 0)}
				a := join(t, d, "a", unsynchronized, on(clock))
				synctest.Wait()
				b := join(t, d, "b", unsynchronized)
				t.Cleanup(clock.resume)
				a.leads(t)
				view := a.View()
				a.store.Inject(memory.Fail(errors.New("cut off")))
				begin := time.Now()
				check := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						sleep(50 * time.Millisecond)
						if view.ValueInFuture() && b.View().ValueInFuture() {
							t.Fatalf("two views at once %v after the last write", time.Since(begin))
						}
					}
				}
				for i := range n {
					clock.Set(-time.Duration(i+1) * by)
					check(2 * time.Second) // it looks at its clocks
					clock.suspend()
					check(by)
					clock.resume()
					check(300 * time.Millisecond)
				}
				check(20 * time.Second)
			})
		})
	}
}

// stalling is the clock of a machine that can be suspended: monotonic time stands
// still and what sleeps does not wake, while wall time goes on.
type stalling struct {
	*clocks.Offset
	mu      sync.Mutex
	at      time.Duration // where monotonic time stood still
	lost    time.Duration // by what it is behind since
	resumed chan struct{} // nil: it runs
}

func (s *stalling) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.resumed = s.Offset.Monotonic()-s.lost, make(chan struct{})
}

func (s *stalling) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != nil {
		s.lost = s.Offset.Monotonic() - s.at
		close(s.resumed)
		s.resumed = nil
	}
}

func (s *stalling) Monotonic() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resumed != nil {
		return s.at
	}
	return s.Offset.Monotonic() - s.lost
}

func (s *stalling) SleepFor(ctx context.Context, d time.Duration) bool {
	slept := s.Offset.SleepFor(ctx, d)
	s.mu.Lock()
	resumed := s.resumed
	s.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
	return slept
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
		sleep(T + S - 1)
		if a.count() > 0 {
			t.Fatal("did not leave the record to the Successor for a term and what clocks run apart in it")
		}
		sleep(spread)
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

// An operator's request is no sign of life: Transfers to a leader that is dead, one
// every few seconds, do not keep the others from leading.
func TestUnsynchronizedTransferToTheDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.Unsynchronized = true
		d.Replace(e)
		a := join(t, d, "a", unsynchronized)
		begin := time.Now()
		for i := 0; a.count() == 0; i++ {
			if err := le.Transfer(t.Context(), d, []string{"b", "c"}[i%2]); err != nil {
				t.Fatal(err)
			}
			sleep(5 * time.Second)
			if time.Since(begin) > 3*T {
				t.Fatal("nobody led in three terms")
			}
		}
		if waited := a.leadership(t, 0).from.Sub(begin); waited < T+S {
			t.Errorf("claimed after %v, want not before a term and the allowance", waited)
		}
	})
}

// replica is a store every second read of which comes from a replica that lags.
type replica struct {
	le.RaceDecider
	stale func() *le.RaceEntry
	reads int
}

func (r *replica) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	if r.reads++; r.reads%2 == 0 {
		if e := r.stale(); e != nil {
			return e, nil
		}
	}
	return r.RaceDecider.ReadCurrent(ctx)
}

// Reads that are stale every second time do not begin the wait anew each time.
func TestUnsynchronizedLaggingReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.Unsynchronized = true
		d.Replace(e)
		old := d.Entry()
		e.Extension, e.TermExpiry = 1, e.TermExpiry.Add(7*time.Second)
		d.Replace(e)
		a := join(t, d, "a", unsynchronized, polled, func(c *config) {
			c.PollInterval = time.Second
			c.Decider = &replica{RaceDecider: c.Decider, stale: old.Clone}
		})
		begin := time.Now()
		for a.count() == 0 && time.Since(begin) < 5*T {
			sleep(100 * time.Millisecond)
		}
		waited := time.Since(begin)
		if a.count() == 0 || waited < T+S || waited > 2*(T+S)+3*time.Second {
			t.Errorf("led %d times, after %v", a.count(), waited)
		}
	})
}

// A store that was set back to an older state has a leader who goes on from there, and
// whose last extension was never seen here: the older state counts from when it is
// first seen after the newest.
func TestUnsynchronizedStoreSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.Unsynchronized = true
		d.Replace(e)
		a := join(t, d, "a", unsynchronized, polled, func(c *config) { c.PollInterval = 5 * time.Second })
		sleep(6 * time.Second)
		newer := e.Clone()
		newer.Extension, newer.TermExpiry = 1, e.TermExpiry.Add(7*time.Second)
		d.Replace(newer)
		sleep(8 * time.Second) // seen at 10 s
		d.Replace(e)           // seen at 15 s: the leader may have extended just before
		sleep(16*time.Second + 500*time.Millisecond - time.Second)
		if a.count() > 0 {
			t.Error("led within a term after the store was seen to have gone back")
		}
		sleep(T + S + 8*time.Second)
		a.leads(t)
	})
}

// Each extension names a TermExpiry of its own, also when the clock was set back by less
// than the allowance: so each moves the view on, and none of another's.
func TestUnsynchronizedAttemptsAreToldApart(t *testing.T) {
	for name, lost := range map[string]bool{"extended": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock := clocks.NewOffset(nil, 0)
				a := join(t, memory.NewDecider(), "a", unsynchronized, on(clock), func(c *config) {
					c.TermLength, c.MaxClockSkew = 4*time.Second, 2*time.Second
				})
				synctest.Wait()
				a.leads(t)
				view := a.View()
				clock.Set(-1500 * time.Millisecond)
				if lost {
					a.store.Inject(memory.LoseRequests().On(memory.Write))
				}
				sleep(2*time.Second + time.Millisecond)
				if view.ValueInFuture() == lost {
					t.Errorf("lost: %v, and the view ends at %v", lost, view.Get())
				}
			})
		})
	}
}
