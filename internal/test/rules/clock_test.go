//go:build go1.25

package rules

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// This file is about clocks that are not as MaxClockSkew promises: a candidate's, or the store's.

// unround moves virtual time away from whole seconds: a stamp that ends in zeros
// is taken for a coarse one.
func unround() { time.Sleep(123456789) }

func on(clock clocks.Clock) func(*config) { return func(c *config) { c.Clock = clock } }

// proved collects what Trace.ClockSkew is told.
type proved struct {
	mu    sync.Mutex
	found []*le.ClockSkewError
}

func (p *proved) hook(c *config) {
	c.Trace.ClockSkew = func(e *le.ClockSkewError) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found = append(p.found, e)
	}
}

func (p *proved) all() []*le.ClockSkewError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*le.ClockSkewError(nil), p.found...)
}

// boundedClock knows its own error.
type boundedClock struct {
	clocks.SystemClock
	bound atomic.Int64
	err   atomic.Pointer[error]
}

func (b *boundedClock) ErrorBound() (time.Duration, error) {
	if err := b.err.Load(); err != nil {
		return 0, *err
	}
	return time.Duration(b.bound.Load()), nil
}

// boundedOffset is a clock that is off and knows its own error.
type boundedOffset struct {
	*clocks.Offset
	bound *boundedClock
}

func (b boundedOffset) ErrorBound() (time.Duration, error) { return b.bound.ErrorBound() }

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

// A candidate whose clock the stamps of its own writes show to be off by more than MaxClockSkew gives back what it
// has acquired by that clock, leaves the record to the others for a term and the allowance for drift, and then
// leads: its record is marked, and it compares no clocks.
func TestClockSkewIsProved(t *testing.T) {
	for name, c := range map[string]struct {
		offset time.Duration
		wrong  bool
	}{
		"ahead within":  {S - 1, false},
		"behind within": {-S + 1, false},
		"ahead":         {S + 1, true},
		"behind":        {-S - 1, true},
		"hours ahead":   {5 * time.Hour, true},
		"hours behind":  {-5 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				var p proved
				d := memory.NewDecider()
				a := join(t, d, "a", on(clocks.NewOffset(nil, c.offset)), p.hook)
				sleep(T + S - time.Millisecond)
				got := p.all()
				if !c.wrong {
					if a.leads(t); len(got) > 0 || d.Entry().Unsynchronized {
						t.Errorf("told of %v; the record is %+v", got, d.Entry())
					}
					return
				}
				if e := d.Entry(); a.count() > 0 || !e.Vacant() || e.ElectionNumber == le.NoElections || !e.Unsynchronized {
					t.Fatalf("it has led %d times; the record is %+v, want it given back", a.count(), e)
				}
				if len(got) != 1 || got[0].Offset.Abs() <= S || got[0].Offset.Abs() > c.offset.Abs() || got[0].Offset < 0 != (c.offset < 0) || got[0].MaxClockSkew != S {
					t.Errorf("told of %v", got)
				}
				sleep(10 * T)
				if a.leads(t); a.count() != 1 || !d.Entry().Unsynchronized {
					t.Errorf("%d leaderships; the record is %+v, want it marked", a.count(), d.Entry())
				}
			})
		})
	}
}

// The same if the answer is lost and the write is read, and if a feed has told of it before, without a stamp.
func TestClockSkewIsProvedByTheWriteItself(t *testing.T) {
	for name, adjust := range map[string]func(*config){
		"a lost answer": func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write))
			polled(c)
		},
		"a feed was first": func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: time.Second}).On(memory.Write))
			feedWithoutTime(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				a := join(t, memory.NewDecider(), "a", on(clocks.NewOffset(nil, 10*time.Second)), adjust)
				sleep(T)
				if len(a.opsSince(time.Time{}, le.OpAcquire)) == 0 || a.count() > 0 {
					t.Errorf("it led %d times by a clock that the stamps prove wrong", a.count())
				}
			})
		})
	}
}

// The stamp of another's record proves nothing: the store's clock may have been wrong when it was written.
func TestClockSkewIsNotProvedByOthersStamps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := clocks.NewOffset(nil, 2*time.Hour)
		d := memory.New(&memory.Options{Clock: clock})
		d.Replace(rival(3))
		clock.Set(0)
		sleep(T + 2*S)
		a := join(t, d, "a", polled)
		sleep(time.Second)
		if a.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want no mark", d.Entry())
		}
	})
}

// A leader whose clock steps out of its bounds steps down with the first stamp that shows it; that write does not
// move the view. Another leads at once, and is not disturbed. When it is gone, the first leaves a term to
// others. Then it leads, marked. The next stamp of its own that fits ends the mistrust.
func TestClockSkewEndsTheLeadership(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Second, -5 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				clock := clocks.NewOffset(nil, 0)
				a := join(t, d, "a", on(clock))
				synctest.Wait()
				b := join(t, d, "b")
				sleep(3 * time.Second)
				r := a.leadership(t, 0)
				before := r.view.Get()
				clock.Set(step)
				sleep(5 * time.Second) // an extension is made at 7 s
				if r.view.ValueInFuture() || !r.view.Get().Equal(before) {
					t.Fatalf("a has a view until %v, want the one until %v ended", r.view.Get(), before)
				}
				var skew *le.ClockSkewError
				if cause := context.Cause(r.ctx); !errors.Is(cause, le.ErrClockSkew) || !errors.As(cause, &skew) || skew.Offset != step {
					t.Fatalf("cause %v, want ErrClockSkew by %v", cause, step)
				}
				b.leads(t)
				sleep(10 * T)
				if b.leads(t); b.count() != 1 {
					t.Errorf("b had %d leaderships: a disturbs it", b.count())
				}
				clock.Set(0) // which nothing shows before a's next write
				b.quit()
				sleep(T)
				a.follows(t)
				sleep(S + time.Second)
				if a.leads(t); !d.Entry().Unsynchronized {
					t.Errorf("the record is %+v, want it marked", d.Entry())
				}
				if err := a.Resign(t.Context()); err != nil {
					t.Fatal(err)
				}
				sleep(T + time.Second)
				if a.leads(t); d.Entry().Unsynchronized {
					t.Errorf("the record is %+v, want no mark: its last stamps fit", d.Entry())
				}
			})
		})
	}
}

// A Hold cannot be measured by those who start later. So a campaign with a Hold whose clock is proved wrong does
// not lead.
func TestClockSkewWithAHoldStaysAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", on(clocks.NewOffset(nil, time.Hour)), func(c *config) { c.Hold = time.Minute })
		sleep(100 * T)
		if n := len(a.opsSince(time.Time{}, le.OpAcquire)); a.count() > 0 || n != 1 || !d.Entry().Vacant() {
			t.Errorf("%d leaderships, %d acquisitions; the record is %+v", a.count(), n, d.Entry())
		}
		b := join(t, d, "b", func(c *config) { c.Hold = time.Minute })
		sleep(time.Second)
		if b.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want no mark", d.Entry())
		}
	})
}

// A Clock that knows its own error is asked four times a term. While it may be off by more than MaxClockSkew, it is
// taken for wrong. If it cannot tell, it is taken for right.
func TestClockSkewByTheClocksOwnBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := &boundedClock{}
		clock.bound.Store(int64(clocks.Unbounded))
		d := memory.NewDecider()
		a := join(t, d, "a", on(clock))
		sleep(T + S - time.Millisecond)
		a.follows(t)
		sleep(time.Second)
		if a.leads(t); !d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want it marked", d.Entry())
		}
		clock.bound.Store(int64(S))
		sleep(T / 4)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(T + 2*S)
		if a.leads(t); d.Entry().Unsynchronized || a.count() != 2 {
			t.Errorf("%d leaderships; the record is %+v, want no mark", a.count(), d.Entry())
		}
		clock.bound.Store(int64(S) + 1)
		sleep(T / 4)
		var skew *le.ClockSkewError
		if cause := context.Cause(a.leadership(t, 1).ctx); !errors.As(cause, &skew) || !skew.Bound || skew.Offset != S+1 {
			t.Fatalf("cause %v", cause)
		}
		a.follows(t)
		err := errors.New("operation not permitted")
		clock.err.Store(&err)
		sleep(T / 4)
		if a.leads(t); d.Entry().Unsynchronized {
			t.Errorf("the record is %+v, want no mark", d.Entry())
		}
	})
}

// If nothing is promised of clocks, nothing is compared.
func TestClockSkewOfNoConcern(t *testing.T) {
	for name, adjust := range map[string]func(*config){
		"one clock for all": func(c *config) { c.MaxClockSkew, c.ClockPolicy = 0, le.SharedClock },
		"Unsynchronized":    func(c *config) { c.ClockPolicy = le.Unsynchronized },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				a := join(t, memory.NewDecider(), "a", on(clocks.NewOffset(nil, time.Hour)), adjust)
				sleep(time.Second)
				a.leads(t)
				sleep(3 * T)
				if a.leads(t); a.count() != 1 {
					t.Errorf("%d leaderships", a.count())
				}
			})
		})
	}
}

// If the store's clock is wrong, every candidate's own stamps say that its clock is. The election goes on after a
// term and the allowance for drift. It rests on monotonic clocks alone, and survives a crash, until the
// store's clock is right and the next leadership begins.
func TestClockSkewOfTheStore(t *testing.T) {
	for _, off := range []time.Duration{3 * time.Second, -3 * time.Second, time.Hour} {
		for name, how := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
			t.Run(name+" "+off.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					unround()
					clock := clocks.NewOffset(nil, 0)
					d := memory.New(&memory.Options{Clock: clock})
					all := []*member{join(t, d, "a", how), join(t, d, "b", how), join(t, d, "c", how)}
					led(t, time.Minute, all...)
					clock.Set(off)
					if n := 10*time.Minute - led(t, 10*time.Minute, all...); n > T+S+T+time.Second { // two polls, and the term from the last vacancy that one of them has left
						t.Errorf("nobody led for %v of ten minutes", n)
					}
					if e := d.Entry(); !e.Unsynchronized {
						t.Errorf("the record is %+v, want it marked Unsynchronized", e)
					}
					for _, m := range all {
						if m.View().ValueInFuture() {
							m.store.Inject(memory.Fail(errors.New("cut off"))) // a crash meanwhile
						}
					}
					if n := 2*time.Minute - led(t, 2*time.Minute, all...); n > T+S {
						t.Errorf("nobody led for %v after a crash", n)
					}
					if e := d.Entry(); !e.Unsynchronized {
						t.Errorf("after the crash, the record is %+v, want it marked", e)
					}
					clock.Set(0)
					for _, m := range all {
						m.store.Inject(nil)
					}
					led(t, 6*T, all...)
					for range 3 { // each may have a proof of its own, which ends with its next write
						for _, m := range all {
							if m.View().ValueInFuture() {
								_ = m.Resign(t.Context())
							}
						}
						led(t, 2*T, all...)
					}
					if e := d.Entry(); e.Vacant() || e.Unsynchronized {
						t.Errorf("after the store's clock was set right, the record is %+v, want no mark", e)
					}
				})
			})
		}
	}
}

// The log says that one of two clocks is wrong, and names both; then that they agree, and that the leadership that
// is under way stays marked until it ends.
func TestClockSkewIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		clock := clocks.NewOffset(nil, time.Hour)
		d := memory.New(&memory.Options{Clock: clock})
		var l lines
		a := join(t, d, "a", logged(&l))
		sleep(time.Minute)
		clock.Set(0)
		sleep(time.Hour)
		if a.leads(t); !d.Entry().Unsynchronized {
			t.Errorf("an hour after the repair, the record is %+v, want it marked still", d.Entry())
		}
		for _, line := range []string{"the clock is wrong, or the store's is", "if the store's clock is the wrong one", "the clock is no longer proved wrong", "stays so until it ends"} {
			if n := l.count(line); n != 1 {
				t.Errorf("%d times %q, want 1: %s", n, line, &l.text)
			}
		}
	})
}

// A store whose clock is wrong for a moment costs the election a term and the allowance for drift.
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
					if none := 10*time.Minute - led(t, 10*time.Minute, all...); none > T+S+T+time.Second {
						t.Errorf("nobody led for %v of ten minutes in which all clocks were right", none)
					}
				})
			})
		}
	}
}

// neverBoth looks for some time whether two of these views are true at once: the one of a leader that was robbed,
// and those that others have then.
func neverBoth(t *testing.T, long time.Duration, robbed *le.TimeView, others ...*member) {
	t.Helper()
	for range long / (10 * time.Millisecond) {
		sleep(10 * time.Millisecond)
		views := 0
		if robbed.ValueInFuture() {
			views++
		}
		for _, o := range others {
			if v := o.View(); v.ElectionNumber() != robbed.ElectionNumber() && v.ValueInFuture() {
				views++
			}
		}
		if views > 1 {
			t.Fatalf("%d views at once, with that of the one who was robbed", views)
		}
	}
}

// ahead is a clock that is an hour ahead.
func ahead() func(*config) { return on(clocks.NewOffset(nil, time.Hour)) }

// robbed has a lead, and b take the lease from it by a clock that is an hour ahead. A does not learn of that
// while its view lives.
func robbed(t *testing.T, d *memory.Decider, adjust ...func(*config)) (a, b *member, view *le.TimeView) {
	t.Helper()
	a = join(t, d, "a", polled)
	sleep(8 * time.Second) // extended at 7 s, and reads nothing before it extends again
	b = join(t, d, "b", append([]func(*config){ahead()}, adjust...)...)
	return a, b, a.leadership(t, 0).view
}

// A candidate whose clock is ahead may take the lease from a leader that does not know: that is the price of a wrong
// clock. But its view does not begin, and nobody else's does while the robbed leader's may live: the record is
// kept for a term and the allowance for drift. Neither an operator nor a feed, lost answer or repair of the
// clock changes that.
func TestClockSkewRobsForNobody(t *testing.T) {
	slowAnswer := func(of memory.Kind) func(*config) {
		return func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: time.Second}).On(of))
		}
	}
	lostAnswer := func(c *config) {
		c.Decider.(*memory.Decider).Inject(memory.LoseAnswers().On(memory.Write).Times(1))
	}
	for name, of := range map[string]struct {
		how    []func(*config)
		asked  time.Duration // when an operator asks for c, after b has begun
		repair time.Duration // when b's clock is set right
	}{
		"polled":                         {how: []func(*config){polled}},
		"pushed":                         {},
		"its answer is lost":             {how: []func(*config){lostAnswer, polled}},
		"an operator asks":               {how: []func(*config){polled}, asked: 2 * time.Second},
		"before it knows":                {how: []func(*config){lostAnswer, polled}, asked: time.Millisecond},
		"a request overtakes the answer": {how: []func(*config){slowAnswer(memory.Write), feedWithoutTime}, asked: 500 * time.Millisecond},
		"a request overtakes a read":     {how: []func(*config){lostAnswer, feedWithoutTime}, asked: 100 * time.Millisecond},
		"set right meanwhile":            {how: []func(*config){slowAnswer(memory.Write), polled}, repair: 700 * time.Millisecond},
		"set right, and asked":           {how: []func(*config){slowAnswer(memory.Write), feedWithoutTime}, asked: 600 * time.Millisecond, repair: 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				clock := clocks.NewOffset(nil, time.Hour)
				_, b, view := robbed(t, d, append(of.how, on(clock))...)
				if of.asked > 0 {
					sleep(of.asked)
					if err := le.Transfer(t.Context(), d, "c"); err != nil {
						t.Fatal(err)
					}
				}
				c := join(t, d, "c", polled, func(c *config) { c.PollInterval = time.Second })
				if of.repair > 0 {
					sleep(of.repair - of.asked)
					clock.Set(0)
				}
				neverBoth(t, T-of.asked, view, b, c)
				if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != first+1 || b.count()+c.count() > 0 {
					t.Fatalf("the record is %+v, want it kept by b, who does not lead", e)
				}
				neverBoth(t, S+3*time.Second, view, b, c)
				if c.leads(t); b.count() > 0 {
					t.Error("b has led")
				}
				neverBoth(t, 10*T, view, b, c)
				if c.leads(t); c.count() != 1 {
					t.Errorf("c had %d leaderships: it was disturbed", c.count())
				}
			})
		})
	}
}

// The same if only the clock's own bound shows it, and that after the acquisition.
func TestClockSkewByItsOwnBoundRobsForNobody(t *testing.T) {
	for _, answered := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			unround()
			d := memory.NewDecider()
			bound := &boundedClock{}
			_, b, view := robbed(t, d, on(boundedOffset{clocks.NewOffset(nil, time.Hour), bound}), func(c *config) {
				if !answered {
					c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: 3700 * time.Millisecond}).On(memory.Write).Times(1))
				}
				unstamped(c)
			})
			sleep(time.Second)
			bound.bound.Store(int64(clocks.Unbounded)) // it looks every 3.75 s
			c := join(t, d, "c", polled, func(c *config) { c.PollInterval = time.Second })
			for range 6 * T / (10 * time.Millisecond) {
				sleep(10 * time.Millisecond)
				if view.ValueInFuture() && c.View().ValueInFuture() {
					t.Fatalf("two views at once, both by right clocks; answered before it is known: %t", answered)
				}
			}
			_ = b
		})
	}
}

// If the one who was robbed has a longer term, the record is kept for that.
func TestClockSkewKeepsForALongerTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		e := rival(3)
		e.TermLength, e.TermExpiry = 4*T, time.Now().Add(4*T)
		d.Replace(e)
		c := join(t, d, "c", func(c *config) { c.PollInterval = time.Second }, polled) // it has seen the longer term
		sleep(time.Second)
		b := join(t, d, "b", ahead(), polled)
		sleep(4*T - time.Second)
		if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != 4 || b.count()+c.count() > 0 {
			t.Fatalf("the record is %+v, want it kept by b, who does not lead", e)
		}
		sleep(S + 4*time.Second)
		c.leads(t)
	})
}

// A leader whose clock is ahead has written a TermExpiry that no right clock could have written. When it
// is gone, the election waits for two terms without a sign of life, not for two hours. The next
// leadership is marked Unsynchronized, from its acquisition to its end: nobody knows whose clock was wrong.
func TestPatience(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		laptop := join(t, d, "laptop", unstamped, on(clocks.NewOffset(nil, 2*time.Hour)))
		sleep(time.Second)
		laptop.leads(t)
		a, b := join(t, d, "a", unstamped), join(t, d, "b", unstamped)
		if n := led(t, 10*time.Minute, laptop, a, b); n != 10*time.Minute || laptop.count() != 1 {
			t.Fatalf("a leader that extends lost its place: led for %v, %d leaderships", n, laptop.count())
		}
		view := laptop.leadership(t, 0).view
		laptop.store.Inject(memory.Fail(errors.New("lid closed")))
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

// Watch has the same patience.
func TestPatienceOfAnObserver(t *testing.T) {
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
