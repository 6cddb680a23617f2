//go:build go1.25

package rules

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func TestLifeline03KeptForTheLiving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		d, k := memory.NewDecider(), newKernel()
		_, b, view := robbed(t, d, lifelined(k.process()), polled)
		c := join(t, d, "c", polled, lifelined(k.process()), func(c *config) { c.PollInterval = time.Second })
		neverBoth(t, T+S-100*time.Millisecond, view, b, c)
		if e := d.Entry(); e.LeaderID != "b" || b.count()+c.count() > 0 {
			t.Fatalf("the record is %+v, want it kept by b, who does not lead", e)
		}
	})
}

// Lifelines, rule 4: a process is not dead while it asks.
func TestLifeline04OwnProcessLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, k := memory.NewDecider(), newKernel()
		of := k.process()
		a := join(t, d, "a", lifelined(of))
		sleep(time.Second)
		b := join(t, d, "b", lifelined(of))
		until := d.Entry().TermExpiry
		a.store.Inject(func(memory.Op) memory.Fault { return memory.Fault{Err: memory.ErrLost} })
		sleep(time.Until(until))
		b.follows(t)
		sleep(2 * T)
		b.leads(t)
	})
}

// Lifelines, rule 6: before each write of the lease it is looked whether this process's own death
// can be proved. If not, nothing of it is left that could prove it falsely.
func TestLifeline06LostDescriptor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, a, b, of, k := pair(t)
		k.mu.Lock()
		of.lost = errors.New("closed by somebody else")
		k.mu.Unlock()
		sleep(T)
		a.leads(t)
		until := d.Entry().TermExpiry.Add(S)
		of.kill(a)
		sleep(time.Until(until) - time.Millisecond)
		b.follows(t)
		sleep(time.Second)
		b.leads(t)
	})
}

// Lifelines, rule 8: in calm the store is asked nothing more.
func TestLifeline08Calm(t *testing.T) {
	count := func(line bool) (ops int) {
		bubble(t, func(t *testing.T) {
			d, k := memory.NewDecider(), newKernel()
			with := func(c *config) {
				if line {
					c.Lifeline = k.process()
				}
			}
			a := join(t, d, "a", polled, with)
			sleep(time.Second)
			b := join(t, d, "b", polled, with)
			sleep(time.Hour)
			ops = len(a.opsSince(time.Time{})) + len(b.opsSince(time.Time{}))
		})
		return ops
	}
	if with, without := count(true), count(false); with != without {
		t.Errorf("%d operations in an hour, %d without", with, without)
	}
}

// A campaign that ends in order leaves no name behind.
func TestLifelineEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, a, _, _, k := pair(t)
		of := a.Leader().Incarnation
		a.quit()
		if !slices.Contains(k.ended, of) {
			t.Errorf("%q has not ended: %v", of, k.ended)
		}
	})
}

// A nil pointer counts as no lifeline.
func TestLifelineNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var none *process
		a := join(t, memory.NewDecider(), "a", lifelined(none))
		sleep(time.Second)
		a.leads(t)
	})
}

// A campaign with a hold is never marked, even if the dead left a term that no right clock wrote: else later jobs would
// never be due.
func TestLifeline03HoldIsNeverMarked(t *testing.T) {
	for name, policy := range map[string]func(*config){
		"no stamps": stayOn,
		"shared":    func(c *config) { c.ClockPolicy, c.MaxClockSkew = le.SharedClock, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				unround()
				d, k := memory.NewDecider(), newKernel()
				of := k.process()
				clock := clocks.NewOffset(nil, 2*time.Hour)
				const hold = 5 * time.Second
				a := join(t, d, "a", policy, on(clock), lifelined(of), func(c *config) { c.Hold = hold })
				sleep(time.Minute) // the job takes longer than its hold
				a.leads(t)
				of.kill(a)
				clock.Set(0)
				cfg := config{Config: le.Config{Decider: d.Handle(), TermLength: T, MaxClockSkew: S, Clock: clock}}
				policy(&cfg)
				run := func(id string) error {
					c := cfg.Config
					c.LeaderID, c.Lifeline = id, k.process()
					return c.Once(t.Context(), le.OnceOptions{Hold: hold}, func(context.Context, *le.TimeView) error { return nil })
				}
				sleep(time.Second)
				if err := run("b"); err != nil {
					t.Fatal(err)
				}
				if e := d.Entry(); e.Unsynchronized {
					t.Errorf("the record with a hold is marked: %+v", e)
				}
				for range 10 {
					sleep(time.Hour)
					if err := run("c"); err != nil {
						t.Errorf("an hour later, after a hold of %v: %v", hold, err)
					}
				}
			})
		})
	}
}
