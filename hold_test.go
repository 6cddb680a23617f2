//go:build go1.25

package leaderelection_test

import (
	"errors"
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
				sleep(2 * time.Millisecond)
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
		b := join(t, d, "b", func(c *le.Config) { c.Clock = clocks.NewOffset(clocks.System(), S) })
		sleep(time.Minute - time.Millisecond)
		b.follows(t)
		sleep(2 * time.Millisecond)
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
		sleep(5 * time.Second)
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
				b := join(t, d, "b", func(c *le.Config) { c.Unsynchronized = true })
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
		a := join(t, d, "a", func(c *le.Config) { c.Hold = 2 * time.Minute })
		sleep(time.Minute)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		sleep(2*time.Minute + S - time.Millisecond - time.Since(began))
		a.follows(t)
		sleep(2 * time.Millisecond)
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
