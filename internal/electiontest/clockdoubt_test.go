//go:build go1.25

package electiontest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// led returns for how long somebody's view was true, and fails if two were at once.
func led(t *testing.T, during time.Duration, all ...*member) (long time.Duration) {
	t.Helper()
	const step = 100 * time.Millisecond
	for range during / step {
		sleep(step)
		views := 0
		for _, m := range all {
			if m.View().ValueInFuture() {
				views++
			}
		}
		if views > 0 {
			long += step
		}
		if views > 1 {
			t.Fatal("two views at once")
		}
	}
	return long
}

// A store whose clock is wrong for a moment stamps records that stay. They raise a doubt. The stamp of
// a candidate's own write decides, so the election goes on as soon as the store's clock is right.
func TestClockSkewOfTheStoreForAMoment(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Hour, 30 * time.Second, -2 * time.Hour} {
		for name, how := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
			t.Run(name+" "+off.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					unround()
					clock := clocks.NewOffset(nil, 0)
					d := memory.New(&memory.Options{Clock: clock})
					all := []*member{join(t, d, "a", how), join(t, d, "b", how), join(t, d, "c", how)}
					sleep(time.Minute)
					clock.Set(off)
					sleep(10 * time.Second)
					clock.Set(0)
					none := 10*time.Minute - led(t, 10*time.Minute, all...)
					t.Logf("nobody led for %v", none)
					if none > 6*T {
						t.Errorf("nobody led for %v of ten minutes in which all clocks were right", none)
					}
				})
			})
		}
	}
}

// The same for a process that makes one try, as cron starts it.
func TestClockSkewOfTheStoreForAMomentOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := clocks.NewOffset(nil, 2*time.Hour)
		d := memory.New(&memory.Options{Clock: clock})
		d.Replace(rival(3))
		clock.Set(0)
		sleep(T + 2*S)
		c, err := le.Config{Decider: d.Handle().Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S}.TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("%v; the record's stamp is of a time in which the store's clock was wrong", err)
		}
		if err := c.Resign(t.Context()); err != nil {
			t.Error(err)
		}
		<-c.Done()
	})
}

// The log has a doubt, once.
func TestClockSkewDoubtIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := clocks.NewOffset(nil, time.Hour)
		d := memory.New(&memory.Options{Clock: clock})
		d.Replace(rival(3))
		clock.Set(0)
		var l lines
		join(t, d, "a", polled, logged(&l))
		sleep(T)
		if n := l.count("stamped the record later"); n != 1 {
			t.Errorf("told %d times of the doubt: %s", n, &l.text)
		}
	})
}

// disproved has a leader whose clock is two hours ahead, on a store without stamps, and then ends it.
func disproved(t *testing.T, d *memory.Decider, adjust ...func(*config)) (laptop *member) {
	t.Helper()
	mute := func(c *config) { c.Decider = unstamped{c.Decider.(*memory.Decider).Polled()} }
	laptop = join(t, d, "laptop", append([]func(*config){mute, on(clocks.NewOffset(nil, 2*time.Hour))}, adjust...)...)
	sleep(time.Second)
	laptop.leads(t)
	return laptop
}

func mutePolled(c *config) { c.Decider = unstamped{c.Decider.(*memory.Decider).Polled()} }

// A leader whose clock is ahead has written a TermExpiry that no right clock could have written. When it
// is gone, the election waits for two terms without a sign of life, not for two hours. The next
// leadership is marked Unsynchronized, from its acquisition to its end: nobody knows whose clock was wrong.
func TestDisprovedTermIsWaitedForByTheMonotonicClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		laptop := disproved(t, d)
		a, b := join(t, d, "a", mutePolled), join(t, d, "b", mutePolled)
		if n := led(t, 10*time.Minute, laptop, a, b); n != 10*time.Minute || laptop.count() != 1 {
			t.Fatalf("a leader that extends lost its place: led for %v, %d leaderships", n, laptop.count())
		}
		view := laptop.leadership(t, 0).view
		laptop.store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: errors.New("lid closed")} })
		gone := time.Now()
		for a.count()+b.count() == 0 && time.Since(gone) < 3*time.Hour {
			sleep(100 * time.Millisecond)
			if view.ValueInFuture() && (a.View().ValueInFuture() || b.View().ValueInFuture()) {
				t.Fatal("two views at once")
			}
		}
		if took := time.Since(gone); took < 2*T-T/2 || took > 2*T+T/2+S {
			t.Errorf("the next leader came after %v, want two terms after the last sign of life was seen", took)
		}
		for range 4 {
			if e := d.Entry(); e.LeaderID == "laptop" || !e.Unsynchronized {
				t.Errorf("the record is %+v, want it marked Unsynchronized", e)
			}
			sleep(T / 2)
		}
		laptop.store.Inject(nil) // and everybody goes by the mark
		if n := led(t, 2*time.Minute, laptop, a, b); n != 2*time.Minute || laptop.count() != 1 {
			t.Errorf("led for %v of two minutes; the laptop had %d leaderships", n, laptop.count())
		}
		next := a
		if b.count() > 0 {
			next = b
		}
		if err := next.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := d.Entry(); e.Vacant() && !e.Unsynchronized {
			t.Errorf("the vacancy is %+v, want it marked", e)
		}
	})
}

// It is marked too if the clock is set right between the read that showed the term over and the write.
func TestDisprovedTermIsMarkedThoughTheClockIsSetRight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(3))
		clock := clocks.NewOffset(nil, -2*time.Hour)
		a := join(t, d, "a", mutePolled, on(clock), func(c *config) {
			c.Healthy = func(context.Context) error { sleep(time.Second); return nil } // it is asked after the read
		})
		sleep(2*T + time.Second/2)
		clock.Set(0)
		sleep(time.Second)
		a.leads(t)
		if e := d.Entry(); !e.Unsynchronized {
			t.Errorf("the record is %+v, want it marked Unsynchronized", e)
		}
	})
}

// waitFor returns after how long a candidate acquires the record that put makes, when the candidate has read
// something else, and then reads it.
func waitFor(t *testing.T, skew time.Duration, slow time.Duration, put func() *le.RaceEntry) time.Duration {
	t.Helper()
	d := memory.NewDecider()
	e := rival(3)
	d.Replace(e)
	a := join(t, d, "a", func(c *config) {
		c.MaxClockSkew, c.PollInterval = skew, time.Second
		c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Read {
				return memory.Fault{Delay: slow}
			}
			return memory.Fault{}
		})
		mutePolled(c)
	})
	sleep(slow + slow/2) // in the middle of a read, if reads are slow
	e = put()
	d.Replace(e)
	since := time.Now()
	for a.count() == 0 && time.Since(since) < time.Hour {
		sleep(10 * time.Millisecond)
	}
	return time.Since(since)
}

// A TermExpiry is disproved by nothing less than what no two clocks within MaxClockSkew can bring about, by
// the clock at the end of the read. Only then is the term waited for by the monotonic clock.
func TestDisprovedOnlyByWhatRightClocksCannotWrite(t *testing.T) {
	const wide = T / 2 // so that a term that is not disproved may last longer than two terms
	far := func(after time.Duration) func() *le.RaceEntry {
		return func() *le.RaceEntry {
			e := rival(4)
			e.TermExpiry = time.Now().Add(T + after)
			return e
		}
	}
	for name, c := range map[string]struct {
		slow time.Duration
		put  func() *le.RaceEntry
		want time.Duration
	}{
		"a writer ahead, a reader behind": {0, far(2 * wide), T + 3*wide},
		"half as far":                     {0, far(wide), T + 2*wide},
		"a read that began long before":   {3 * time.Second, far(2*wide + 1500*time.Millisecond), T + 3*wide + 1500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				took := waitFor(t, wide, c.slow, c.put)
				if took < c.want || took > c.want+2*c.slow+time.Second {
					t.Errorf("acquired %v after it was written, want %v: its TermExpiry is not disproved", took, c.want)
				}
			})
		})
	}
	t.Run("further", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			if took := waitFor(t, S, 0, far(time.Hour)); took < 2*T || took > 2*T+4*time.Second {
				t.Errorf("acquired after %v, want two terms", took)
			}
		})
	})
	t.Run("a Hold", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			took := waitFor(t, S, 0, func() *le.RaceEntry { e := far(10 * time.Minute)(); e.Hold = time.Minute; return e })
			if took < 11*time.Minute {
				t.Errorf("acquired after %v, though it has a Hold", took)
			}
		})
	})
}

// The proof counts for the term that it was made of. The next one, with a right TermExpiry, is
// waited for by the wall clock, and the leadership after it is not marked.
func TestDisprovedForOneTerm(t *testing.T) {
	const wide = T / 2 // so that a term that is not disproved may last longer than two terms
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.TermExpiry = time.Now().Add(time.Hour)
		d.Replace(e)
		a := join(t, d, "a", mutePolled, func(c *config) { c.MaxClockSkew, c.PollInterval = wide, time.Second })
		sleep(T)
		e = rival(3)
		e.Extension, e.TermExpiry = 1, time.Now().Add(T+2*wide)
		d.Replace(e)
		written := time.Now()
		for a.count() == 0 && time.Since(written) < time.Hour {
			sleep(10 * time.Millisecond)
		}
		near(t, "the wait", time.Since(written), T+3*wide, time.Second)
		if e := d.Entry(); e.Unsynchronized {
			t.Errorf("the record is %+v, want no mark", e)
		}
	})
}

// A campaign with a hold cannot mark its record: others could not tell when a Hold that is measured is over.
// So it waits.
func TestDisprovedIsWaitedForWithAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.TermExpiry = time.Now().Add(10 * time.Minute)
		d.Replace(e)
		a := join(t, d, "a", mutePolled, func(c *config) { c.Hold = time.Hour })
		sleep(10 * time.Minute)
		if a.count() > 0 {
			t.Error("acquired before the TermExpiry")
		}
		sleep(T)
		if a.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the record is %+v", d.Entry())
		}
	})
}

// Watch goes by it too.
func TestDisprovedTermLapses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.TermExpiry = time.Now().Add(time.Hour)
		d.Replace(e)
		o := observe(t, d.Handle(), true, 0)
		sleep(2*T - time.Second)
		if got := o.list(); len(got) != 1 {
			t.Fatalf("before two terms: %q", got)
		}
		sleep(T)
		if got := o.list(); len(got) != 2 || got[1] != "lapsed 3" {
			t.Errorf("after two terms: %q", got)
		}
	})
}

// A leader whose clock is ahead by more than twice MaxClockSkew is called so once a minute by each of
// the others, though every record of it shows that. Another such leader is called so at once.
func TestClocksDisagreeIsLoggedBriefly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		laptop := disproved(t, d)
		var standby, observer lines
		join(t, d, "a", mutePolled, logged(&standby))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: slog.New(slog.NewTextHandler(&observer, nil))}.Watch(ctx,
				func(context.Context, le.RaceEntry) {})
		}()
		sleep(time.Hour)
		const line = "clocks disagree"
		for name, l := range map[string]*lines{"standby": &standby, "observer": &observer} {
			if n := l.count(line); n < 50 || n > 61 {
				t.Errorf("the %s logged %d lines in an hour, want about one a minute", name, n)
			}
		}
		before := observer.count(line)
		laptop.quit()
		e := rival(d.Entry().ElectionNumber + 1)
		e.TermExpiry = time.Now().Add(time.Hour)
		d.Replace(e)
		sleep(time.Second)
		if n := observer.count(line); n != before+1 {
			t.Errorf("%d lines about another leader, want 1", n-before)
		}
		cancel()
		<-done
	})
}

// If a store's clock is off, and the Clock knows that this machine's is not, the election goes on. It
// rests on monotonic clocks alone until the store's clock is right.
func TestClockSkewOfTheStore(t *testing.T) {
	for _, off := range []time.Duration{3 * time.Second, -3 * time.Second, time.Hour} {
		for name, how := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
			t.Run(name+" "+off.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					unround()
					clock := clocks.NewOffset(nil, 0)
					d := memory.New(&memory.Options{Clock: clock})
					var l lines
					var all []*member
					for _, id := range []string{"a", "b", "c"} {
						vouches := &boundedClock{}
						vouches.bound.Store(int64(50 * time.Millisecond))
						all = append(all, join(t, d, id, how, on(vouches), logged(&l)))
					}
					led(t, time.Minute, all...)
					clock.Set(off)
					n := led(t, 10*time.Minute, all...)
					t.Logf("led for %v of ten minutes", n)
					if n < 9*time.Minute+50*time.Second {
						t.Errorf("led for %v of ten minutes, though all three clocks are right", n)
					}
					if e := d.Entry(); !e.Unsynchronized {
						t.Errorf("the record is %+v, want it marked Unsynchronized", e)
					}
					if l.count("the store's clock is wrong, or the kernel is wrong about this one") == 0 {
						t.Error("nothing names the store's clock")
					}
					before := d.Entry().ElectionNumber
					for _, m := range all {
						if m.View().ValueInFuture() {
							m.store.Inject(memory.Fail(errors.New("cut off"))) // a crash meanwhile
						}
					}
					if n := led(t, 2*time.Minute, all...); n < 2*time.Minute-2*T {
						t.Errorf("led for %v of the two minutes after a crash", n)
					}
					if e := d.Entry(); e.ElectionNumber != before+1 || !e.Unsynchronized {
						t.Errorf("after the crash, the record is %+v, want it marked", e)
					}
					clock.Set(0)
					for _, m := range all {
						m.store.Inject(nil)
					}
					led(t, 6*T, all...)
					for _, m := range all {
						if m.View().ValueInFuture() {
							_ = m.Resign(t.Context())
						}
					}
					led(t, T, all...)
					if e := d.Entry(); e.Vacant() || e.Unsynchronized {
						t.Errorf("after the store's clock was set right, the record is %+v, want no mark", e)
					}
				})
			})
		}
	}
}

// A candidate that knows of the contradiction marks the record that it acquires, and the vacancy that it leaves.
func TestClockSkewOfTheStoreIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.New(&memory.Options{Clock: clocks.NewOffset(nil, 3*time.Second)})
		vouches := &boundedClock{}
		vouches.bound.Store(int64(50 * time.Millisecond))
		a := join(t, d, "a", on(vouches))
		sleep(time.Minute)
		a.leads(t)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := d.Entry(); !e.Vacant() || !e.Unsynchronized {
			t.Errorf("the vacancy is %+v, want it marked", e)
		}
		sleep(T + S)
		a.leads(t)
		for _, e := range a.seenAll()[1:] {
			if !e.Unsynchronized {
				t.Errorf("told of %+v, want it marked", e)
			}
		}
	})
}

// The log names the clock that was wrong when it is right again. The leadership that is under way stays
// marked until it ends.
func TestClockSkewOfTheStoreIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := clocks.NewOffset(nil, time.Hour)
		d := memory.New(&memory.Options{Clock: clock})
		vouches := &boundedClock{}
		vouches.bound.Store(int64(50 * time.Millisecond))
		var l lines
		a := join(t, d, "a", on(vouches), logged(&l))
		sleep(time.Minute)
		clock.Set(0)
		sleep(time.Hour)
		if a.leads(t); !d.Entry().Unsynchronized {
			t.Errorf("an hour after the repair, the record is %+v, want it marked still", d.Entry())
		}
		for line, want := range map[string]int{"the store's clock is no longer proved wrong": 1, "stays so until it ends": 1, "the clock is no longer proved wrong": 0} {
			if n := l.count(line); n != want {
				t.Errorf("%d times %q, want %d: %s", n, line, want, &l.text)
			}
		}
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(T + S)
		if a.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the next leadership's record is %+v, want no mark", d.Entry())
		}
	})
}

// Once the Clock no longer vouches for itself, the log and the Trace say that this clock may be the wrong one.
func TestClockSkewOfTheStoreNoLongerVouchedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.New(&memory.Options{Clock: clocks.NewOffset(nil, time.Hour)})
		vouches := &boundedClock{}
		vouches.bound.Store(int64(50 * time.Millisecond))
		var l lines
		var p proved
		a := join(t, d, "a", on(vouches), logged(&l), p.hook)
		sleep(time.Minute)
		a.leads(t)
		vouches.bound.Store(0)
		sleep(T)
		if a.follows(t); l.count("the clock is wrong") != 1 || len(p.all()) != 1 {
			t.Errorf("told of %v: %s", p.all(), &l.text)
		}
	})
}

// If the Clock does not vouch for itself, the candidate does not lead, and the error names both clocks.
func TestClockSkewWithoutASecondWitness(t *testing.T) {
	for name, bound := range map[string]time.Duration{"it cannot tell": 0, "nothing keeps it right": clocks.Unbounded} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.New(&memory.Options{Clock: clocks.NewOffset(nil, time.Minute)})
				clock := &boundedClock{}
				clock.bound.Store(int64(bound))
				var l lines
				a := join(t, d, "a", on(clock), logged(&l))
				sleep(10 * T)
				if a.count() > 0 {
					t.Errorf("had %d leaderships", a.count())
				}
				if bound == 0 && l.count("if the store's clock is the wrong one") == 0 {
					t.Errorf("the store's clock is not named: %s", &l.text)
				}
			})
		})
	}
}
