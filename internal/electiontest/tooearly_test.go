//go:build go1.25

package electiontest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A candidate whose clock is far ahead takes the lease once, since nothing it could
// read shows the fault: it begins no leadership, and does not do it again.
func TestClockSkewDisturbsOnce(t *testing.T) {
	for name, how := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				a := join(t, d, "a", how)
				sleep(time.Second)
				b := join(t, d, "b", how, on(clocks.NewOffset(nil, time.Minute)))
				sleep(40 * T)
				if a.leads(t); a.count() > 2 || b.count() > 0 {
					t.Errorf("a had %d leaderships, b %d, want 2 at most and none", a.count(), b.count())
				}
			})
		})
	}
}

// neverBoth looks for some time whether the robbed leader's view and another's are
// true at once.
func neverBoth(t *testing.T, long time.Duration, robbed *le.TimeView, others ...*member) {
	t.Helper()
	for range long / (10 * time.Millisecond) {
		sleep(10 * time.Millisecond)
		for _, o := range others {
			if robbed.ValueInFuture() && o.View().ValueInFuture() {
				t.Fatalf("two views at once: that of the one who was robbed, and %s's", o.id)
			}
		}
	}
}

// ahead is a clock that is an hour ahead.
func ahead() func(*config) { return on(clocks.NewOffset(nil, time.Hour)) }

// robbed has a lead, and b take the lease from it by a clock that is an hour ahead.
func robbed(t *testing.T, d *memory.Decider, adjust ...func(*config)) (a, b *member, view *le.TimeView) {
	t.Helper()
	a = join(t, d, "a", polled)
	sleep(8 * time.Second) // extended at 7 s, and reads nothing before it extends again
	b = join(t, d, "b", append(append([]func(*config){ahead()}, adjust...), func(c *config) {
		if d, ok := c.Decider.(*memory.Decider); ok {
			c.Decider = d.Polled()
		}
	})...)
	return a, b, a.leadership(t, 0).view
}

// What was taken too early is kept for a term and the allowance for drift, in which
// nobody leads, and then released: by then the view of the one who led is over.
func TestClockSkewKeepsWhatItTookTooEarly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a, b, view := robbed(t, d)
		took := time.Now()
		c := join(t, d, "c", polled, func(c *config) { c.PollInterval = time.Second })
		neverBoth(t, T+S-100*time.Millisecond, view, b, c)
		if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != first+1 || b.count()+c.count() > 0 {
			t.Fatalf("the record is %+v, want it kept by b, who does not lead", e)
		}
		sleep(200 * time.Millisecond)
		if n := len(b.opsSince(time.Now().Add(-time.Second), le.OpRelease)); n != 1 {
			t.Fatalf("released %d times; the record is %+v", n, d.Entry())
		}
		sleep(2 * time.Second)
		c.leads(t)
		// The price, as doc.go has it: about a term without a leader.
		gap := c.leadership(t, 0).from.Sub(a.leadership(t, 0).done)
		t.Logf("nobody led for %v; taken %v after the last extension", gap, took.Sub(view.Get().Add(S-T)))
		if gap > T+2*S {
			t.Errorf("nobody led for %v", gap)
		}
	})
}

// Also where the store was set back, and what was read is long over: what is known
// was not.
func TestClockSkewKeepsWhatWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		d.Replace(rival(3))
		b := join(t, d, "b", polled, on(clocks.NewOffset(nil, 5*time.Second)), func(c *config) { c.PollInterval = time.Second })
		sleep(T / 2)
		later := rival(3)
		later.Extension = 1
		d.Replace(later)
		sleep(2 * time.Second)
		d.Replace(func() *le.RaceEntry { e := rival(3); e.TermExpiry = time.Now(); return e }())
		sleep(time.Until(later.TermExpiry) - time.Second)
		if e := d.Entry(); e.LeaderID != "b" || b.count() > 0 {
			t.Errorf("the record is %+v, want it taken too early, and kept", e)
		}
	})
}

// Operators change nothing about it, and neither does another process of the same
// LeaderID, which knows nothing of the view that is alive. It is released to whom they
// asked for.
func TestClockSkewKeepsDespiteTransfer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		_, b, view := robbed(t, d, func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		})
		sleep(time.Millisecond)
		if err := le.Transfer(t.Context(), d, "c"); err != nil { // before b knows that it has taken it
			t.Fatal(err)
		}
		others := []*member{b, join(t, d, "a"), join(t, d, "c")}
		neverBoth(t, T, view, others...)
		if e := d.Entry(); e.LeaderID != "b" || e.Successor != "c" {
			t.Fatalf("the record is %+v, want it kept", e)
		}
		sleep(S + time.Second)
		if others[2].leads(t); b.count() > 0 {
			t.Error("b led")
		}
	})
}

// It is kept as well by a candidate whose clock was set right while the request was
// out, and that could lead by now.
func TestClockSkewKeepsThoughRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, time.Hour)
		_, b, view := robbed(t, d, on(clock), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second).On(memory.Write).Times(1))
		})
		sleep(700 * time.Millisecond) // it has landed
		if e := d.Entry(); e.LeaderID != "b" {
			t.Fatalf("the record is %+v, want b's", e)
		}
		clock.Set(0)
		neverBoth(t, 30*time.Second, view, b)
		b.leads(t) // by a number of its own
		if n := b.leadership(t, 0).number; n < 3 {
			t.Errorf("b leads with number %d, by what it took too early", n)
		}
	})
}

// unstamped is a store that does not tell its time.
type unstamped struct{ le.RaceDecider }

type unstampedToken struct{ le.LeaderToken }

func (unstampedToken) CommitTS() time.Time { return time.Time{} }

func (u unstamped) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := u.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		e.Token = unstampedToken{e.Token}
	}
	return e, err
}

func (u unstamped) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	if t, ok := e.Token.(unstampedToken); ok {
		e.Token = t.LeaderToken
	}
	token, err := u.RaceDecider.WriteEntry(ctx, e)
	return unstampedToken{token}, err
}

// boundedOffset is a clock that is off and knows its own error.
type boundedOffset struct {
	*clocks.Offset
	bound *boundedClock
}

func (b boundedOffset) ErrorBound() (time.Duration, error) { return b.bound.ErrorBound() }

// Where the store does not tell its time, the clock's own bound is a reason to keep it.
func TestClockSkewKeepsByItsOwnBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		bound := &boundedClock{}
		_, b, view := robbed(t, d, on(boundedOffset{clocks.NewOffset(nil, time.Hour), bound}), func(c *config) {
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				slow := time.Second // the first look at the bound comes before it writes, the next 3.75 s later
				if op.Kind == memory.Write {
					slow = 3400 * time.Millisecond
				}
				return memory.Fault{Delay: slow / 2, AnswerDelay: slow / 2}
			})
			c.Decider = unstamped{c.Decider}
		})
		sleep(time.Second)
		bound.bound.Store(int64(clocks.Unbounded))
		neverBoth(t, T-time.Second, view, b)
		if e := d.Entry(); e.LeaderID != "b" || b.count() > 0 {
			t.Fatalf("the record is %+v, want it kept by b, who had %d leaderships", e, b.count())
		}
	})
}

// A candidate that is told to stop meanwhile stops when it has released it: nobody
// else could take it for an hour.
func TestClockSkewStopsWhenItHasReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		_, b, view := robbed(t, d)
		sleep(time.Second)
		began := time.Now()
		b.stop()
		neverBoth(t, T, view, b)
		<-b.Done()
		near(t, "stopping", time.Since(began), T+S-time.Second, 100*time.Millisecond)
		if e := d.Entry(); !e.Vacant() {
			t.Errorf("the record is %+v, want it released", e)
		}
	})
}

// Nor does a reservation that an operator asked for last longer, where a candidate
// whose clock is ahead grants it.
func TestClockSkewReservesNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		join(t, d, "a", on(clocks.NewOffset(nil, time.Hour)), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if e := d.Entry(); !e.Vacant() || e.Successor != "c" {
			t.Fatalf("the record is %+v, want it reserved for c", e)
		}
		b := join(t, d, "b")
		sleep(T + S + time.Second)
		b.leads(t)
	})
}

// A candidate whose clock is ahead releases what the others take for held, though by
// its own clock the term is over.
func TestClockSkewGoesOnReleasing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", on(clock))
		sleep(time.Second)
		clock.Set(5 * time.Second)
		var writes atomic.Int64
		a.store.Inject(func(op memory.Op) memory.Fault { // the extension is the last that is answered
			if op.Kind != memory.Write || writes.Add(1) == 1 {
				return memory.Fault{}
			}
			return memory.Fault{Err: errors.New("cut off")}
		})
		sleep(22 * time.Second) // extended at 7 s until 27 s, which is here at 22 s by its own clock
		if e := d.Entry(); e.Vacant() || e.Extension != 1 {
			t.Fatalf("the record is %+v, want the first extension", e)
		}
		if !errors.Is(a.leadership(t, 0).cause, le.ErrClockSkew) {
			t.Fatalf("cause %v", a.leadership(t, 0).cause)
		}
		a.store.Inject(nil)
		sleep(4 * time.Second)
		if e := d.Entry(); !e.Vacant() {
			t.Errorf("the record is %+v, which keeps others out until 28 s; want it released", e)
		}
	})
}

// undisturbed cuts b off, which leads, and says when a takes its lease: with a clock
// that is known to be ahead, no sooner than one that is right.
func undisturbed(t *testing.T, d *memory.Decider, a, b *member) {
	t.Helper()
	b.leads(t)
	b.store.Inject(memory.Fail(errors.New("cut off")).On(memory.Write))
	campaigns, over := len(a.opsSince(time.Time{}, le.OpAcquire)), d.Entry().TermExpiry
	for range 3000 {
		sleep(10 * time.Millisecond)
		if len(a.opsSince(time.Time{}, le.OpAcquire)) > campaigns {
			if early := time.Until(over); early > 0 {
				t.Errorf("taken %v before it was over", early)
			}
			return
		}
	}
	t.Error("never taken")
}

// A candidate that has learnt how far its clock is ahead does not unlearn it, when a
// slow write shows less.
func TestClockSkewStrongestProofCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(clocks.NewOffset(nil, time.Hour)))
		sleep(time.Second)
		a.store.Inject(memory.Slow(3 * time.Second).On(memory.Write)) // 1.5 s each way
		sleep(5 * T)                                                  // the first proof is old by now, and it has campaigned again
		if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n != 2 {
			t.Fatalf("%d acquisitions", n)
		}
		a.store.Inject(nil)
		b := join(t, d, "b")
		sleep(5 * T) // nor does the second proof keep it from campaigning
		undisturbed(t, d, a, b)
	})
}

// fast is a clock that is ahead, with a monotonic reading that runs apart from it by
// 200 millionths.
type fast struct {
	clocks.SystemClock
	begin time.Time
}

func (f fast) Now() time.Time                  { return time.Now().Round(0).Add(time.Hour) }
func (f fast) Until(t time.Time) time.Duration { return t.Sub(f.Now()) }
func (f fast) Monotonic() time.Duration {
	since := time.Since(f.begin)
	return since + since/5000
}

// Clocks of one machine that drift apart are not taken for a step back.
func TestClockSkewDriftIsNoStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(fast{begin: time.Now()}))
		sleep(time.Second)
		b := join(t, d, "b")
		sleep(10 * time.Hour) // 7.2 s
		undisturbed(t, d, a, b)
	})
}

// One that is slewed back is trusted as much as what it reads allows.
func TestClockSkewShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(&slewing{begin: time.Now(), from: time.Minute}))
		sleep(time.Second)
		b := join(t, d, "b")
		sleep(8 * time.Minute) // it is 12 s ahead
		b.leads(t)
		b.store.Inject(memory.Fail(errors.New("cut off")).On(memory.Write))
		over := d.Entry().TermExpiry
		sleep(time.Until(over) + 3*S) // it has been slewed by 1.5 s since it read that
		if ops := a.opsSince(over.Add(-T), le.OpAcquire); len(ops) == 0 || time.Until(over) > 0 {
			t.Errorf("%d campaigns until %v after the lease was over: it goes by what its clock was ahead once", len(ops), -time.Until(over))
		}
	})
}

// So does one whose clock was set further ahead meanwhile.
func TestClockSkewGoesOnReleasingWhereItGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, time.Hour)
		join(t, d, "a", on(clock), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		clock.Set(4 * time.Hour)
		sleep(3 * time.Second)
		if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first+60*60 { // by its clock
			t.Errorf("the record is %+v, which keeps others out for an hour; want it released", e)
		}
	})
}
