//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// priority gives a candidate one.
func priority(p int) func(*le.Config) { return func(c *le.Config) { c.Priority = p } }

// leadFrom has a candidate without a priority lead until it may be asked.
func leadFrom(t *testing.T, d *memory.Decider) *member {
	t.Helper()
	a := join(t, d, "a")
	sleep(5 * T)
	a.leads(t)
	return a
}

// A preferred candidate leads after a term, by one request and one hand-over; the other
// does not take it back.
func TestPriorityHandsOver(t *testing.T) {
	for name, adjust := range map[string]func(*le.Config){"pushed": func(*le.Config) {}, "polled": polled} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", adjust)
				sleep(5 * T)
				b := join(t, d, "b", priority(1), adjust)
				sleep(T - time.Second)
				a.leads(t)
				sleep(T + 2*time.Second) // a polled store: until both have looked
				b.leads(t)
				gap := b.leadership(t, 0).from.Sub(a.leadership(t, 0).done)
				if most := map[string]time.Duration{"pushed": time.Millisecond, "polled": T/2 + time.Second}[name]; gap < 0 || gap > most {
					t.Errorf("nobody led for %v", gap)
				}
				if cause := a.leadership(t, 0).cause; !errors.Is(cause, le.ErrResigned) {
					t.Errorf("cause %v", cause)
				}
				if p := d.Entry().Priority; p != 1 {
					t.Errorf("the record's priority is %d", p)
				}
				sleep(20 * T)
				b.leads(t)
				if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 1 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// A leadership that is new is left alone, and one whose candidate is as good, or on hold.
func TestPriorityLeavesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		leader, other func(*le.Config)
		since, wait   time.Duration
	}{
		"new":       {priority(0), priority(1), 0, 3 * T},
		"as good":   {priority(1), priority(1), 5 * T, 20 * T},
		"better":    {priority(1), priority(-1), 5 * T, 20 * T},
		"on hold":   {func(c *le.Config) { c.Hold = time.Hour }, priority(1), 5 * T, 20 * T},
		"too short": {priority(0), priority(1), 5 * T, T - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a", c.leader)
				sleep(c.since)
				sleep(time.Second)
				join(t, d, "b", c.other)
				sleep(c.wait)
				a.leads(t)
				if a.count() != 1 || d.Entry().Successor != "" {
					t.Errorf("%d leaderships, on record is %+v", a.count(), d.Entry())
				}
			})
		})
	}
}

// How often a leader extends its lease has no part in how long it is left alone.
func TestPriorityKnowsTheLeadersPace(t *testing.T) {
	for _, every := range []time.Duration{T / 20, T / 8, 0} {
		for name, adjust := range map[string]func(*le.Config){"pushed": func(*le.Config) {}, "polled": polled} {
			t.Run(fmt.Sprint(name, every), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := memory.NewDecider()
					a := join(t, d, "a", adjust, func(c *le.Config) { c.ExtendEvery = every })
					sleep(time.Second)
					b := join(t, d, "b", adjust, priority(1))
					sleep(3*T + T/2)
					a.leads(t)
					if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 {
						t.Errorf("%d requests", n)
					}
					sleep(4 * T)
					b.leads(t)
				})
			})
		}
	}
}

// Each leader that is less preferred is left alone for as long, whoever led before it.
func TestPriorityBeginsAnewWithEachLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := leadFrom(t, d)
		c := join(t, d, "c", func(c *le.Config) { c.ExtendEvery = T / 20 })
		b := join(t, d, "b", priority(1))
		sleep(T / 2)
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		sleep(T - time.Second)
		c.leads(t)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 || a.count() != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// Who is not well asks nobody, and stands by for a whole term when it is.
func TestPriorityAsksOnlyWhenWell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := leadFrom(t, d)
		var sick atomic.Bool
		b := join(t, d, "b", priority(1), func(c *le.Config) {
			c.Healthy = func(context.Context) error {
				if sick.Load() {
					return errors.New("sick")
				}
				return nil
			}
		})
		sleep(T / 2)
		sick.Store(true)
		sleep(10 * T)
		a.leads(t)
		sick.Store(false)
		sleep(T)
		a.leads(t)
		sleep(T)
		b.leads(t)
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := leadFrom(t, d)
		join(t, d, "b", priority(1), func(c *le.Config) { c.Clock = clocks.NewOffset(clocks.System(), -3*S) })
		sleep(10 * T)
		a.leads(t)
	})
}

// A preferred candidate that dies whenever it leads, and is started again at once, costs one
// hand-over in four terms.
func TestPriorityDoesNotFlap(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := leadFrom(t, d)
		const terms = 100
		deaths, requests := 0, 0
		for end := time.Now().Add(terms * T); time.Now().Before(end); {
			b := join(t, d, fmt.Sprint("b", deaths), priority(1))
			for b.count() == 0 && time.Now().Before(end) {
				sleep(time.Second)
			}
			if b.count() > 0 {
				deaths++
			}
			b.store.Inject(memory.LoseRequests())
			b.stop()
			requests += len(b.opsSince(time.Time{}, le.OpRequest))
		}
		// It also wins every other race for what its predecessor has left.
		if requests > terms/4 || requests < terms/10 || a.count() < requests {
			t.Errorf("%d requests in %d terms, a has led %d times, b %d", requests, terms, a.count(), deaths)
		}
	})
}

// A lost answer, or a lost race, is not another request.
func TestPriorityAsksOnce(t *testing.T) {
	for name, fault := range map[string]memory.Fault{"lost answer": {Err: memory.ErrLost, Lands: true}, "lost race": {Err: le.ErrLostRace}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				leadFrom(t, d)
				b := join(t, d, "b", priority(1))
				b.store.Inject(memory.Always(fault).On(memory.Write).Times(1))
				sleep(2 * T)
				b.leads(t)
				if n := len(b.opsSince(time.Time{}, le.OpRequest)); n > 2 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

// A candidate reads before it asks: on a polled store what it knows may be half a term old.
func TestPriorityReadsFirst(t *testing.T) {
	for i := range 7 {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			join(t, d, "a", polled)
			sleep(5*T + time.Duration(i)*time.Second + time.Second/3) // never when the leader extends
			b := join(t, d, "b", polled, priority(1), func(c *le.Config) { c.PollInterval = 3 * T })
			sleep(5 * T)
			b.leads(t)
			if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 1 {
				t.Errorf("started after %d s: %d requests, want the first to be granted", i, n)
			}
		})
	}
}
