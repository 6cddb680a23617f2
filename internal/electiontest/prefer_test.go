//go:build go1.25

package electiontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// priority gives a candidate one.
func priority(p int) func(*config) { return func(c *config) { c.Priority = p } }

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
	for name, adjust := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
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

// Both sides say at Info who asked for a hand-over: else the leader's log has a resignation
// that nobody has made.
func TestPriorityIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var asked, asking bytes.Buffer
		logged := func(b *bytes.Buffer) func(*config) {
			return func(c *config) { c.Logger = slog.New(slog.NewTextHandler(b, nil)) }
		}
		a := join(t, d, "a", logged(&asked))
		sleep(5 * T)
		b := join(t, d, "b", priority(3), logged(&asking))
		sleep(2 * T)
		b.leads(t)
		a.quit()
		b.quit()
		if want := `msg="leaderelection: asked to hand over" id=a token=946684800 to=b`; strings.Count(asked.String(), want) != 1 {
			t.Errorf("the leader's log lacks %q, or has it twice:\n%s", want, asked.String())
		}
		want := `msg="leaderelection: asking a less preferred leader to hand over" id=b leader=a token=946684800 priority=3 leader_priority=0`
		if strings.Count(asking.String(), want) != 1 {
			t.Errorf("the candidate's log lacks %q, or has it twice:\n%s", want, asking.String())
		}
	})
}

// A leadership that is new is left alone, and one whose candidate is as good, or on hold.
func TestPriorityLeavesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		leader, other func(*config)
		since, wait   time.Duration
	}{
		"new":       {priority(0), priority(1), 0, 3 * T},
		"as good":   {priority(1), priority(1), 5 * T, 20 * T},
		"better":    {priority(1), priority(-1), 5 * T, 20 * T},
		"on hold":   {func(c *config) { c.Hold = time.Hour }, priority(1), 5 * T, 20 * T},
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
		for name, adjust := range map[string]func(*config){"pushed": func(*config) {}, "polled": polled} {
			t.Run(fmt.Sprint(name, every), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := memory.NewDecider()
					a := join(t, d, "a", adjust, func(c *config) { c.ExtendEvery = every })
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
		c := join(t, d, "c", func(c *config) { c.ExtendEvery = T / 20 })
		b := join(t, d, "b", priority(1), polled) // it does not see the vacancy in between
		sleep(T / 2)
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		sleep(T - time.Second)
		c.leads(t)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 || a.count() != 1 {
			t.Errorf("%d requests", n)
		}
		sleep(8 * T)
		b.leads(t)
	})
}

// Nor does it count what it stood by under another leadership of the same number, which the store has lost
// since.
func TestPriorityBeginsAnewWithTheSameNumber(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		lead := func(id string, extension uint64) {
			e := rival(7)
			e.LeaderID, e.Incarnation, e.Extension = id, id, extension
			d.Replace(e)
		}
		lead("a", 8)
		b := join(t, d, "b", priority(1), polled)
		sleep(T * 3 / 4)
		lead("c", 9)
		sleep(T * 3 / 4)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 {
			t.Errorf("%d requests of one that has stood by for less than a term", n)
		}
	})
}

// Who is not well asks nobody, and stands by for a whole term when it is.
func TestPriorityAsksOnlyWhenWell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := leadFrom(t, d)
		var sick atomic.Bool
		b := join(t, d, "b", priority(1), func(c *config) {
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
		join(t, d, "b", priority(1), func(c *config) { c.Clock = clocks.NewOffset(clocks.System(), -3*S) })
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

// A lost answer is not another request: it is read what became of the first. A lost race is
// one more.
func TestPriorityAsksOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault    memory.Fault
		adjust   func(*config)
		requests int
	}{
		"lost answer":         {memory.Fault{Err: memory.ErrLost, Lands: true}, func(*config) {}, 1},
		"lost answer, polled": {memory.Fault{Err: memory.ErrLost, Lands: true}, polled, 1},
		"lost race":           {memory.Fault{Err: le.ErrLostRace}, func(*config) {}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				leadFrom(t, d)
				b := join(t, d, "b", priority(1), c.adjust)
				b.store.Inject(memory.Always(c.fault).On(memory.Write).Times(1))
				sleep(2*T + 2*time.Second)
				b.leads(t)
				if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != c.requests {
					t.Errorf("%d requests, want %d", n, c.requests)
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
			b := join(t, d, "b", polled, priority(1), func(c *config) { c.PollInterval = 3 * T })
			sleep(5 * T)
			b.leads(t)
			if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 1 {
				t.Errorf("started after %d s: %d requests, want the first to be granted", i, n)
			}
		})
	}
}

// It asks when a whole term has passed, and not before the leadership has been extended
// eight times: with nothing to wake it at that time but its own alarm.
func TestPriorityAsksInTime(t *testing.T) {
	for name, c := range map[string]struct {
		joins, asks time.Duration // after the leader; not at an instant at which it extends
		adjust      func(*config)
	}{
		"settled, pushed":   {5*T + 2*time.Second, 6*T + 2*time.Second, func(*config) {}},
		"settled, polled":   {5*T + 2*time.Second, 6*T + 2*time.Second, polled},
		"settles meanwhile": {time.Second, 8 * 7 * time.Second, func(*config) {}}, // it extends every 7 s
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				began := time.Now()
				join(t, d, "a", c.adjust)
				sleep(c.joins)
				b := join(t, d, "b", priority(1), c.adjust)
				sleep(7*T - c.joins)
				ops := b.opsSince(time.Time{}, le.OpRequest)
				if len(ops) != 1 {
					t.Fatalf("%d requests", len(ops))
				}
				near(t, "the request", ops[0].Start.Sub(began), c.asks, time.Millisecond)
			})
		})
	}
}

// Who is sick for a moment, which only its own asking shows, begins a new term of standing by.
func TestPriorityAsksForHealthAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(5*T + time.Second) // the leader extends 1 s and 8 s from now
		joined := time.Now()
		b := join(t, d, "b", priority(1), func(c *config) {
			c.Healthy = func(context.Context) error {
				if at := time.Since(joined); at > 2*time.Second && at < 7*time.Second {
					return errors.New("sick")
				}
				return nil
			}
		})
		sleep(T + 2*time.Second)
		a.leads(t)
		sleep(T)
		b.leads(t)
	})
}

// One that has lost its leadership asks nobody before its own callbacks have returned:
// until then it could not lead.
func TestPriorityAsksNobodyWhileItsCallbacksRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		b := join(t, d, "b", priority(1), func(c *config) {
			c.OnElected = func(ctx context.Context, _ *le.TimeView) {
				<-ctx.Done()
				time.Sleep(20 * T)
			}
		})
		sleep(time.Second)
		e := d.Entry()
		e.LeaderID, e.ElectionNumber, e.Incarnation = "", first+1, "another's"
		d.Replace(e)
		a := join(t, d, "a")
		sleep(15 * T)
		a.leads(t)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 {
			t.Errorf("%d requests", n)
		}
		sleep(10 * T)
		b.leads(t)
	})
}

// What is read decides who is asked: in a store that was set back one leads who is
// preferred, and not the one that is known.
func TestPriorityAsksNobodyWhenTheStoreWasSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(7)
		e.TermExpiry = time.Now().Add(-time.Hour)
		d.Replace(e)
		join(t, d, "a")
		sleep(5 * T)
		b := join(t, d, "b", priority(1))
		sleep(T - time.Second)
		e.TermExpiry, e.Priority = time.Now().Add(T), 2
		d.Replace(e)
		sleep(T)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n != 0 || d.Entry().Successor != "" {
			t.Errorf("%d requests, on record is %+v", n, d.Entry())
		}
	})
}

// A store that refuses each request is asked no more often than for anything else.
func TestPriorityBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		leadFrom(t, d)
		b := join(t, d, "b", priority(1))
		b.store.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Write { // with what there is, which saves a read
				return memory.Fault{Err: &le.LostRaceError{Current: d.Entry()}}
			}
			return memory.Fault{}
		})
		sleep(T + 10*time.Second)
		if n := len(b.opsSince(time.Time{}, le.OpRequest)); n < 3 || n > 40 {
			t.Errorf("%d requests in 10 s", n)
		}
	})
}

// A candidate asks no leader of its own LeaderID to hand over: nothing would come of it.
func TestPriorityAsksNobodyOfItsOwnName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Second)
		twin := join(t, d, "a", func(c *config) { c.Priority = 1 })
		sleep(time.Hour)
		if n := len(twin.opsSince(time.Time{}, le.OpRequest)); n > 0 {
			t.Errorf("%d requests to a leader of its own name", n)
		}
		a.leads(t)
	})
}
