package leaderelection_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A candidate whose clock is far ahead takes the lease once, since nothing it could
// read shows the fault: it begins no reign, and does not do it again.
func TestClockSkewDisturbsOnce(t *testing.T) {
	for name, how := range map[string]func(*le.Config){"pushed": func(*le.Config) {}, "polled": polled} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				a := join(t, d, "a", how)
				sleep(time.Second)
				b := join(t, d, "b", how, on(clocks.NewOffset(nil, time.Minute)))
				sleep(40 * T)
				if a.leads(t); a.count() > 2 || b.count() > 0 {
					t.Errorf("a had %d reigns, b %d, want 2 at most and none", a.count(), b.count())
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

// What was taken too early is handed back: it is reserved for whom it was taken from
// until that one's view is over by everybody's clock. A third waits so long, and the
// one who was robbed need not.
func TestClockSkewHandsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second) // extended at 7 s, and reads nothing before it extends again
		view := a.reign(t, 0).view
		b := join(t, d, "b", polled, on(clocks.NewOffset(nil, time.Hour)))
		c := join(t, d, "c", polled)
		sleep(5 * time.Second)
		if len(b.opsSince(time.Time{}, le.OpAcquire)) != 1 || b.count() > 0 {
			t.Fatal("b did not take the lease, or led")
		}
		if e := d.Entry(); !e.Vacant() || e.Successor != "a" || !e.TermExpiry.Equal(view.Get().Add(2*S)) {
			t.Fatalf("the record is %+v, want it reserved for a", e)
		}
		neverBoth(t, 30*time.Second, view, c)
		if a.leads(t); a.count() != 2 || c.count() != 0 {
			t.Errorf("a had %d reigns, c %d", a.count(), c.count())
		}
	})
}

// An operator's Transfer does not undo that: it waits until the reservation is over.
func TestClockSkewHandBackOutlastsTransfer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second)
		view := a.reign(t, 0).view
		a.store.Inject(memory.Fail(errors.New("cut off"))) // it will not claim again
		join(t, d, "b", on(clocks.NewOffset(nil, time.Hour)))
		c := join(t, d, "c", polled)
		sleep(time.Second)
		if e := d.Entry(); !e.Vacant() || e.Successor != "a" {
			t.Fatalf("the record is %+v, want it reserved for a", e)
		}
		done := make(chan error, 1)
		go func() { done <- le.Transfer(t.Context(), d.Handle(), "c") }()
		neverBoth(t, 30*time.Second, view, c)
		if err := <-done; err != nil && !errors.Is(err, le.ErrLostRace) {
			t.Error(err)
		}
		c.leads(t)
	})
}

// Where the answers were lost, and the liar claims its own record again, it is still
// the first one that is handed back, not its own term.
func TestClockSkewHandsBackTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		d.Replace(rival(3))
		robbed := d.Entry()
		var acquired atomic.Int64
		b := join(t, d, "b", on(clocks.NewOffset(nil, time.Minute)), func(c *le.Config) {
			c.PollInterval = time.Second
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write {
					acquired.Add(1)
				}
				if acquired.Load() == 0 || time.Since(robbed.TermExpiry) > T/2 {
					return memory.Fault{}
				}
				return memory.Fault{Err: errors.New("lost"), Lands: op.Kind == memory.Write && acquired.Load() == 1}
			})
		}, polled)
		sleep(3 * T)
		if n := acquired.Load(); n < 3 || b.count() > 0 {
			t.Fatalf("%d writes, %d reigns", n, b.count())
		}
		if e := d.Entry(); !e.Vacant() || e.Successor == "b" || e.TermExpiry.After(robbed.TermExpiry.Add(S)) {
			t.Errorf("the record is %+v, want nobody kept out by b's clock", e)
		}
	})
}

// It is handed back as well by a candidate whose clock was set right while the request
// was out, and that could lead by now.
func TestClockSkewHandsBackThoughRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second)
		view := a.reign(t, 0).view
		clock := clocks.NewOffset(nil, time.Hour)
		b := join(t, d, "b", on(clock), func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second).On(memory.Write).Times(1))
		}, polled)
		sleep(700 * time.Millisecond) // it has landed
		if e := d.Entry(); e.LeaderID != "b" {
			t.Fatalf("the record is %+v, want b's", e)
		}
		clock.Set(0)
		neverBoth(t, 30*time.Second, view, b)
		if a.leads(t); a.count() != 2 || b.count() != 0 {
			t.Errorf("a had %d reigns, b %d", a.count(), b.count())
		}
	})
}

// An operator's wish, which is written over it before its answer is known, does not
// hide whose write it was.
func TestClockSkewOfAWish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second)
		b := join(t, d, "b", on(clocks.NewOffset(nil, time.Hour)), func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		if err := le.StepDown(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if e := d.Entry(); e.LeaderID != "b" || e.Extension != 1 {
			t.Fatalf("the record is %+v, want b's with a wish", e)
		}
		sleep(3 * time.Second)
		if e := d.Entry(); !e.Vacant() || e.Successor != "a" {
			t.Errorf("the record is %+v, want it handed back to a", e)
		}
		sleep(T)
		if a.leads(t); b.count() != 0 {
			t.Errorf("b had %d reigns", b.count())
		}
	})
}

// It is handed back to the process that led: another of that LeaderID, which knows
// nothing of the view that may be alive, waits like anybody else, and so does one
// that is asked for by name.
func TestClockSkewHandsBackToTheProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second)
		view := a.reign(t, 0).view
		join(t, d, "b", on(clocks.NewOffset(nil, time.Hour)), func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		if err := le.StepDown(t.Context(), d); err != nil { // it makes what b releases a third write
			t.Fatal(err)
		}
		sleep(2 * time.Second)
		if e := d.Entry(); !e.Vacant() || e.Successor != "a" {
			t.Fatalf("the record is %+v, want it handed back to a", e)
		}
		asked := make(chan error, 1)
		go func() { asked <- le.Transfer(t.Context(), d, "c") }()
		others := []*member{join(t, d, "a"), join(t, d, "c")}
		neverBoth(t, 4*time.Second, view, others...)
		sleep(T)
		a.leads(t)
		if err := <-asked; !errors.Is(err, le.ErrLostRace) {
			t.Errorf("Transfer returned %v, want that another reign has begun", err)
		}
	})
}

// A third whose clock is known to be ahead leaves alone what another has handed back.
func TestClockSkewLeavesWhatIsHandedBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		c := join(t, d, "c", on(clocks.NewOffset(nil, time.Hour)))
		sleep(time.Second)
		a := join(t, d, "a", polled)
		sleep(5 * T) // c's proof is old, and does not keep it from contesting
		a.leads(t)
		for time.Until(d.Entry().TermExpiry) < T-time.Second { // just extended
			sleep(100 * time.Millisecond)
		}
		contests := len(c.opsSince(time.Time{}, le.OpAcquire))
		join(t, d, "b", on(clocks.NewOffset(nil, 3*time.Hour)))
		sleep(time.Second)
		if e := d.Entry(); !e.HandedBack || e.Successor != "a" {
			t.Fatalf("the record is %+v, want it handed back to a", e)
		}
		if n := len(c.opsSince(time.Time{}, le.OpAcquire)); n > contests {
			t.Errorf("c has taken what is reserved for a, %d times", n-contests)
		}
	})
}

// What is handed back to a leader whose own clock is ahead, by far, is reserved no
// longer than its view can last.
func TestClockSkewHandsBackNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(clocks.NewOffset(nil, time.Hour)), stayOn, polled)
		sleep(8 * time.Second)
		a.leads(t)
		join(t, d, "b", on(clocks.NewOffset(nil, 3*time.Hour)))
		sleep(10 * time.Millisecond)
		e := d.Entry()
		if !e.Vacant() || !e.HandedBack || e.Successor != "a" {
			t.Fatalf("the record is %+v, want it handed back to a", e)
		}
		if left := time.Until(e.TermExpiry); left > T+S || left < 10*time.Second {
			t.Errorf("reserved for %v", left)
		}
	})
}

// Nor does a reservation that an operator wished for last longer, where a candidate
// whose clock is ahead grants it.
func TestClockSkewReservesNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		join(t, d, "a", on(clocks.NewOffset(nil, time.Hour)), func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		e := d.Entry()
		if !e.Vacant() || e.HandedBack || e.Successor != "c" {
			t.Fatalf("the record is %+v, want it reserved for c", e)
		}
		if left := time.Until(e.TermExpiry); left > T || left < T-2*time.Second {
			t.Errorf("reserved for %v", left)
		}
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
		if !errors.Is(a.reign(t, 0).cause, le.ErrClockSkew) {
			t.Fatalf("cause %v", a.reign(t, 0).cause)
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
	contests, over := len(a.opsSince(time.Time{}, le.OpAcquire)), d.Entry().TermExpiry
	for range 3000 {
		sleep(10 * time.Millisecond)
		if len(a.opsSince(time.Time{}, le.OpAcquire)) > contests {
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
		sleep(5 * T)                                                  // the first proof is old by now, and it has contested again
		if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n != 2 {
			t.Fatalf("contested %d times", n)
		}
		a.store.Inject(nil)
		b := join(t, d, "b")
		sleep(5 * T) // nor does the second proof keep it from contesting
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
			t.Errorf("%d contests until %v after the lease was over: it goes by what its clock was ahead once", len(ops), -time.Until(over))
		}
	})
}

// So does one whose clock was set further ahead meanwhile.
func TestClockSkewGoesOnReleasingWhereItGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, time.Hour)
		join(t, d, "a", on(clock), func(c *le.Config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		}, polled)
		sleep(time.Millisecond)
		clock.Set(4 * time.Hour)
		sleep(3 * time.Second)
		if e := d.Entry(); !e.Vacant() || e.ElectionNumber != 1 {
			t.Errorf("the record is %+v, which keeps others out for an hour; want it released", e)
		}
	})
}
