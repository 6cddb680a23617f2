//go:build go1.25

package leaderelection_test

import (
	"errors"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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
				view := a.reign(t, 0).view
				b := join(t, d, "b", ahead(), func(c *le.Config) { c.Decider.(*memory.Decider).Inject(of.faults) })
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
		b := join(t, d, "b", ahead(), func(c *le.Config) {
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
		b := join(t, d, "b", func(c *le.Config) {
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
		if c.leads(t); b.count() > 0 || d.Entry().ElectionNumber != 2 {
			t.Errorf("b led %d times; %+v", b.count(), d.Entry())
		}
	})
}
