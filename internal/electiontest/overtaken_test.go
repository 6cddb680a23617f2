//go:build go1.25

package electiontest

import (
	"context"
	"errors"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// feedWithoutTime has the store's time in answers only: what a feed tells of does not show yet
// that the clock is wrong.
func feedWithoutTime(c *config) { c.Decider = told{c.Decider.(*memory.Decider)} }

// It is kept as well where a feed tells of an operator's request before the answer is
// here that shows whose record it is.
func TestClockSkewKeepsThoughARequestOvertakes(t *testing.T) {
	lost := memory.LoseAnswers().On(memory.Write).Times(1)
	for name, of := range map[string]struct {
		asked  time.Duration // after b began
		faults memory.Faults
	}{
		"the write's answer": {500 * time.Millisecond, func(op memory.Op) memory.Fault {
			if op.Kind == memory.Write {
				return memory.Fault{AnswerDelay: time.Second}
			}
			return memory.Fault{}
		}},
		"the read's answer": {1500 * time.Millisecond, func(op memory.Op) memory.Fault {
			if op.Kind == memory.Read {
				return memory.Fault{AnswerDelay: time.Second}
			}
			return lost(op)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d := memory.NewDecider()
				a := join(t, d, "a", polled)
				sleep(8 * time.Second)
				view := a.leadership(t, 0).view
				b := join(t, d, "b", ahead(), func(c *config) { c.Decider.(*memory.Decider).Inject(of.faults) }, feedWithoutTime)
				sleep(of.asked)
				if e := d.Entry(); e.LeaderID != "b" {
					t.Fatalf("the record is %+v, want b's", e)
				}
				if err := le.Transfer(t.Context(), d, "c"); err != nil {
					t.Fatal(err)
				}
				c := join(t, d, "c")
				neverBoth(t, T-time.Second, view, b, c)
				if e := d.Entry(); e.LeaderID != "b" || e.Successor != "c" {
					t.Fatalf("the record is %+v, want it kept", e)
				}
				sleep(S + 4*time.Second)
				if c.leads(t); b.count() > 0 {
					t.Error("b led")
				}
			})
		})
	}
}

// The operator's request is granted when it is released, also by a candidate whose clock
// was set right meanwhile, and that could lead by then.
func TestClockSkewKeepsAndGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		sleep(8 * time.Second)
		view, clock := a.leadership(t, 0).view, clocks.NewOffset(nil, time.Hour)
		b := join(t, d, "b", on(clock), func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second).On(memory.Write).Times(1))
		}, feedWithoutTime)
		sleep(600 * time.Millisecond) // it has landed
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		clock.Set(0)
		c := join(t, d, "c")
		neverBoth(t, T, view, b, c)
		if e := d.Entry(); e.LeaderID != "b" || e.Successor != "c" {
			t.Fatalf("the record is %+v, want it kept", e)
		}
		sleep(S + time.Second)
		if c.leads(t); b.count() > 0 {
			t.Error("b led")
		}
	})
}

// It is kept for the sake of a leader whose term is longer than one's own, also where
// that is learned after a term of one's own only.
func TestClockSkewKeepsForALongerTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d := memory.NewDecider()
		e := rival(3)
		e.TermLength = 4 * T
		e.TermExpiry = time.Now().Add(4 * T)
		d.Replace(e)
		b := join(t, d, "b", ahead(), func(c *config) {
			cut := false
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				cut = cut || op.Kind == memory.Write
				if cut {
					return memory.Fault{Err: errors.New("cut off"), Lands: true}
				}
				return memory.Fault{}
			})
		}, polled)
		sleep(T + 2*time.Second)
		b.store.Inject(nil)
		sleep(3*T - 3*time.Second)
		if e := d.Entry(); e.LeaderID != "b" || e.ElectionNumber != 4 || b.count() > 0 {
			t.Errorf("the record is %+v, want it taken, and kept", e)
		}
		sleep(S + 4*time.Second)
		if e := d.Entry(); !e.Vacant() {
			t.Errorf("the record is %+v, want it released", e)
		}
	})
}

// Rule 18, where a feed tells of the request before the acquisition's answer is here.
func TestRule18RequestOvertakesTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		b := join(t, d, "b", func(c *config) {
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Write {
					return memory.Fault{AnswerDelay: time.Second}
				}
				return memory.Fault{}
			})
		})
		sleep(100 * time.Millisecond)
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		c := join(t, d, "c")
		sleep(5 * time.Second)
		if c.leads(t); b.count() > 0 || d.Entry().ElectionNumber != first+1 {
			t.Errorf("b led %d times; %+v", b.count(), d.Entry())
		}
	})
}

// Rule 18, where the request comes when the view is over, and the term is not: it is
// released to whom the operator asked for, and not claimed again.
func TestRule18RequestAfterTheView(t *testing.T) {
	for name, ask := range map[string]func(context.Context, le.RaceDecider) error{
		"StepDown": func(ctx context.Context, d le.RaceDecider) error { return le.StepDown(ctx, d, false) },
		"Transfer": func(ctx context.Context, d le.RaceDecider) error { return le.Transfer(ctx, d, "c") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", func(c *config) {
					elected := c.OnElected
					c.OnElected = func(ctx context.Context, v *le.TimeView) {
						elected(ctx, v)
						time.Sleep(800 * time.Millisecond) // until the term is nearly over
					}
				})
				sleep(time.Second)
				c := join(t, d, "c")
				a.leads(t)
				a.store.Inject(memory.Fail(errors.New("cut off")))
				sleep(T - S - 500*time.Millisecond) // the view ends at 14 s
				a.follows(t)
				if err := ask(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				a.store.Inject(nil)
				sleep(2 * time.Second)
				if c.leads(t); a.count() != 1 {
					t.Errorf("a had %d leaderships", a.count())
				}
			})
		})
	}
}
