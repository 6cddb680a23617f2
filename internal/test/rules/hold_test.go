//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// held is a vacancy that is on hold from now.
func held(hold time.Duration) *le.RaceEntry {
	return &le.RaceEntry{ElectionNumber: 1, Extension: 1, TermExpiry: time.Now(), TermLength: T, Incarnation: "x", Hold: hold}
}

// A hold keeps everybody away until its end and MaxClockSkew, whatever the Config says
// of holds, also one who was asked for as Successor.
func TestHoldKeepsEverybodyAway(t *testing.T) {
	for name, successor := range map[string]string{"nobody named": "", "named": "b"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				e := held(time.Minute)
				e.Successor = successor
				d.Replace(e)
				b := join(t, d, "b")
				sleep(time.Minute + S - time.Millisecond)
				b.follows(t)
				sleep(spread)
				b.leads(t)
				if h := d.Entry().Hold; h != 0 {
					t.Errorf("the next leadership has the hold %v", h)
				}
			})
		})
	}
}

// A clock that is ahead, within bounds, waits until true time has come.
func TestHoldIsJudgedByClocksWithinBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(held(time.Minute))
		b := join(t, d, "b", func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), S) })
		sleep(time.Minute - time.Millisecond)
		b.follows(t)
		sleep(spread)
		b.leads(t)
	})
}

// A clock that was wrong when it wrote the record stops the election for no longer than
// the hold, as others see it.
func TestHoldByAWrongClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := held(time.Minute)
		e.TermExpiry = e.TermExpiry.Add(1000 * time.Hour)
		d.Replace(e)
		b := join(t, d, "b")
		sleep(time.Minute)
		b.follows(t)
		sleep(5*time.Second + spread)
		b.leads(t)
	})
}

// Candidates that compare no wall clocks count the hold by their own, from when they saw
// the record first.
func TestHoldUnsynchronized(t *testing.T) {
	for name, vacant := range map[string]bool{"vacant": true, "held": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				e := held(time.Minute)
				e.Unsynchronized, e.TermExpiry = true, e.TermExpiry.Add(-1000*time.Hour)
				wait := time.Minute + time.Minute/(T/S) + S // clocks may run apart by S in each term
				if !vacant {
					e.LeaderID = "dead"
					wait += T
				}
				d.Replace(e)
				b := join(t, d, "b", func(c *config) { c.ClockPolicy = le.Unsynchronized })
				sleep(wait - time.Millisecond)
				b.follows(t)
				sleep(2 * time.Second)
				b.leads(t)
			})
		})
	}
}

// A leader with a Hold that resigns leaves it behind, and heeds it itself.
func TestHoldBindsTheOneThatLed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		began := time.Now()
		a := join(t, d, "a", func(c *config) { c.Hold = 2 * time.Minute })
		sleep(time.Minute)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(2*time.Minute + S - time.Millisecond - time.Since(began))
		a.follows(t)
		sleep(spread)
		a.leads(t)
	})
}

// Nobody can hand over what is on hold. Whether that is over, no operator's clock decides:
// one that is ahead would have the job run twice.
func TestHoldIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(held(time.Minute))
		for _, wait := range []time.Duration{0, time.Hour} {
			sleep(wait)
			if err := le.Transfer(t.Context(), d, "b"); !errors.Is(err, le.ErrNoLeader) || !strings.Contains(err.Error(), "held for nobody") {
				t.Errorf("%v later: %v", wait, err)
			}
		}
		if e := d.Entry(); e.Successor != "" || e.Hold != time.Minute || e.Extension != 1 {
			t.Errorf("on record is %+v", e)
		}
	})
}

// What an operator asks for during a hold does not cut it, nor does the end of a clock's
// counting; when it is over, a term is left for the clocks.
func TestHoldIsNotHandedOverUntilATermAfterIt(t *testing.T) {
	for name, c := range map[string]struct {
		hold, term, after time.Duration
		unsynchronized    bool
	}{
		"just over":          {time.Minute, T, time.Minute + T/2, false},
		"by no common clock": {time.Minute, T, 1000 * time.Hour, true},
		"without an end":     {math.MaxInt64, T, time.Hour, false},
		"of an endless term": {time.Minute, math.MaxInt64, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				e := held(c.hold)
				e.TermLength, e.Unsynchronized = c.term, c.unsynchronized
				d.Replace(e)
				sleep(c.after)
				if err := le.Transfer(t.Context(), d, "b"); !errors.Is(err, le.ErrNoLeader) {
					t.Errorf("%v, on record is %+v", err, d.Entry())
				}
			})
		})
	}
}

// A Hold that no candidate can have written does not shorten a term, and holds for no longer
// than the longest that is allowed.
func TestHoldThatIsDamaged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(7)
		e.Hold = -time.Hour
		d.Replace(e)
		b := join(t, d, "b")
		sleep(T + S - time.Millisecond)
		b.follows(t)
		sleep(spread)
		b.leads(t)
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(held(math.MaxInt64))
		b := join(t, d, "b", func(c *config) { c.PollInterval = le.MaxTermLength })
		sleep(le.MaxTermLength)
		b.follows(t)
		sleep(time.Hour)
		b.leads(t)
	})
	bubble(t, func(t *testing.T) { // a term that no candidate has
		d := memory.NewDecider()
		e := held(time.Hour)
		e.TermLength, e.LeaderID = 1, ""
		d.Replace(e)
		b := join(t, d, "b", func(c *config) { c.ClockPolicy = le.Unsynchronized })
		sleep(3 * time.Hour)
		b.leads(t)
	})
	bubble(t, func(t *testing.T) { // a term of which there are more in the hold than can be counted
		d := memory.NewDecider()
		e := held(math.MaxInt64)
		e.Unsynchronized, e.TermLength = true, 1
		d.Replace(e)
		b := join(t, d, "b", func(c *config) { c.ClockPolicy, c.PollInterval = le.Unsynchronized, le.MaxTermLength })
		sleep(le.MaxTermLength)
		b.follows(t)
		sleep(le.MaxTermLength - time.Minute)
		b.follows(t)
		sleep(2 * time.Minute)
		b.leads(t)
	})
}

// By clocks that are not compared a hold takes longer by the allowance for drift in each of
// its terms: that is how far two of them may run apart meanwhile.
func TestHoldUnsynchronizedAllowsForDrift(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := held(time.Hour)
		e.Unsynchronized = true
		d.Replace(e)
		b := join(t, d, "b", func(c *config) { c.ClockPolicy = le.Unsynchronized })
		sleep(time.Hour + S*time.Duration(int64(time.Hour/T)) - time.Millisecond)
		b.follows(t)
		sleep(2*T + 2*S)
		b.leads(t)
	})
}

// A leader with a Hold that is asked to hand over leaves its hold behind, to the very end
// that it had, and no reservation; a slow acquisition has not lengthened it.
func TestHoldOutlivesAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		began := time.Now()
		a := join(t, d, "a", func(c *config) {
			c.Hold = 2 * time.Minute
			c.Decider.(*memory.Decider).Inject(memory.Slow(2 * time.Second).On(memory.Write))
		})
		sleep(30 * time.Second)
		a.leads(t)
		asked := d.Entry() // Transfer refuses it
		asked.Successor = "b"
		asked.Extension++
		d.Replace(asked)
		sleep(10 * time.Second)
		e := d.Entry()
		if over := e.TermExpiry.Add(e.Hold).Sub(began); !e.Vacant() || e.Successor != "" || over != 2*time.Minute {
			t.Errorf("held for %v: %+v", over, e)
		}
	})
}

// A hold is that of the leadership that began it: who has lost its view, acquires its own
// record again and releases it at once, as it is told to stop, ends no hold.
func TestHoldOutlivesWhatBeganNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		began := time.Now()
		a := join(t, d, "a", func(c *config) { c.Hold = 5 * time.Minute })
		sleep(time.Second)
		a.leads(t)
		a.store.Inject(memory.LoseRequests())
		sleep(2 * T)
		a.follows(t)
		a.store.Inject(func(op memory.Op) memory.Fault {
			if op.Kind != memory.Write {
				return memory.Fault{}
			}
			a.stop()
			return memory.Fault{Delay: time.Second}
		})
		<-a.Done()
		e := d.Entry()
		if over := e.TermExpiry.Add(e.Hold).Sub(began); !e.Vacant() || e.ElectionNumber != first+1 || over != 5*time.Minute {
			t.Errorf("held for %v: %+v", over, e)
		}
	})
}

// Transfer and StepDown refuse while the leader has a Hold: the leader would go, and nobody could follow.
// StepDown with force ends its job all the same.
func TestTransferDuringAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.Hold = time.Hour })
		sleep(time.Second)
		before := *d.Entry()
		for asked, err := range map[string]error{"Transfer": le.Transfer(t.Context(), d, "b"), "StepDown": le.StepDown(t.Context(), d, false)} {
			if !errors.Is(err, le.ErrRefused) || !strings.Contains(err.Error(), before.TermExpiry.Add(before.Hold).Format(time.RFC3339)) {
				t.Errorf("%s: %v, want it to say until when the record is held", asked, err)
			}
		}
		if e := d.Entry(); e.Successor != "" || e.Extension != before.Extension {
			t.Errorf("the record is %+v, want it untouched", e)
		}
		a.leads(t)
		if err := le.StepDown(t.Context(), d, true); err != nil {
			t.Error(err)
		}
		sleep(time.Second)
		a.follows(t)
	})
}

// A store whose clock is wrong while a job runs does not shorten the job's Hold: the candidates' clocks
// are right, and the Hold is theirs.
func TestHoldThoughTheStoresClockIsWrong(t *testing.T) {
	for _, policy := range []le.ClockPolicy{le.Synchronized} {
		for _, off := range []time.Duration{-time.Hour, -10 * time.Second, 10 * time.Second, time.Hour} {
			for _, lasts := range []time.Duration{10 * time.Second, time.Hour} {
				t.Run(fmt.Sprint(policy, off, lasts), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						unround()
						clock := clocks.NewOffset(nil, 0)
						d := memory.New(&memory.Options{Clock: clock})
						ran := 0
						once := func(id string) error {
							return le.Config{Decider: d.Handle().Polled(), LeaderID: id, TermLength: T, MaxClockSkew: S, ClockPolicy: policy}.Once(t.Context(),
								le.OnceOptions{Hold: 30 * time.Minute}, func(ctx context.Context, _ *le.TimeView) error {
									ran++
									select {
									case <-time.After(20 * time.Second):
									case <-ctx.Done():
									}
									return nil
								})
						}
						time.AfterFunc(5*time.Second, func() { clock.Set(off) })
						time.AfterFunc(5*time.Second+lasts, func() { clock.Set(0) })
						_ = once("a")
						sleep(30 * time.Second)
						if err := once("b"); !errors.Is(err, le.ErrNotElected) || ran != 1 {
							t.Errorf("the job ran %d times within its Hold; the second Once: %v", ran, err)
						}
						sleep(time.Hour + 30*time.Minute)
						if err := once("c"); err != nil || ran != 2 {
							t.Errorf("after the Hold: %v, the job ran %d times", err, ran)
						}
					})
				})
			}
		}
	}
}
