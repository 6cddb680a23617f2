//go:build go1.25

package rules

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// apart fails unless there were some operations, each so long after the last one.
func apart(t *testing.T, ops []le.StoreOp, least time.Duration) {
	t.Helper()
	if len(ops) < 3 {
		t.Fatalf("only %d requests", len(ops))
	}
	for i := range ops[1:] {
		if gap := ops[i+1].Start.Sub(ops[i].Start); gap < least {
			t.Errorf("asked again after %v, want %v", gap, least)
		}
	}
}

// Rule 11: a release waits for half of the time that a leaving candidate has, if the store asks for a
// longer pause.
func TestRule11RetryAfterWhileLeaving(t *testing.T) {
	for name, leave := range map[string]func(*member){
		"resign": func(m *member) { _ = m.Resign(context.Background()) },
		"quit":   (*member).quit,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := join(t, memory.NewDecider(), "a", polled)
				sleep(20 * T)
				a.store.Inject(asksForPause(50 * time.Second).On(memory.Write).Times(1))
				begin := time.Now()
				leave(a)
				near(t, "the release", time.Since(begin), T/4, S/2)
				if e := a.Leader(); !e.Vacant() {
					t.Errorf("not released: %+v", e)
				}
			})
		})
	}
}

// Rule 11: so it releases what it has, however short its term is.
func TestRule11RetryAfterOfAShortTerm(t *testing.T) {
	for _, term := range []time.Duration{2 * S, 4 * S, 6 * S} {
		bubble(t, func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a", polled, func(c *config) { c.TermLength = term })
			sleep(20 * T)
			a.store.Inject(asksForPause(50 * time.Second).On(memory.Write).Times(1))
			a.quit()
			if e := a.Leader(); !e.Vacant() {
				t.Errorf("with a term of %v it is not released: %+v", term, e)
			}
		})
	}
}

// Rule 11: a wish for a pause is over when a later write was taken.
func TestRule11RetryAfterIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", polled)
		sleep(20 * T)
		a.store.Inject(asksForPause(50 * time.Second).On(memory.Write).Times(1))
		refused, begin := 0, time.Now()
		for taken := 0; taken == 0; sleep(T / 100) {
			refused = 0
			for _, op := range a.opsSince(begin) {
				if op.Kind == le.OpExtend && op.Err != nil {
					refused++
				} else if op.Kind == le.OpExtend {
					taken++
				}
			}
		}
		if refused != 1 {
			t.Fatalf("%d extensions were refused", refused)
		}
		begin = time.Now()
		_ = a.Resign(context.Background())
		near(t, "the release", time.Since(begin), 0, S/100)
	})
}

// Rule 11: a candidate whose acquisition is refused, with a wish for a pause, asks once what became of
// it, and then keeps the pause.
func TestRule11RetryAfterOfAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const pause = 50 * time.Second
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(asksForPause(pause).On(memory.Write))
		}, polled)
		sleep(time.Hour)
		if n, most := len(a.opsSince(time.Time{})), 3*int(time.Hour/pause)+1; n > most {
			t.Errorf("%d requests, want at most %d", n, most)
		}
	})
}

// Rule 11: who has resigned is a standby, and keeps pauses to the end.
func TestRule11RetryAfterResigned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
		sleep(20 * T)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		another := rival(a.Leader().ElectionNumber + 1)
		another.TermLength, another.TermExpiry = time.Hour, time.Now().Add(time.Hour)
		d.Replace(another)
		sleep(2500 * time.Millisecond)
		a.store.Inject(asksForPause(50 * time.Second))
		begin := time.Now()
		sleep(10 * time.Minute)
		apart(t, a.opsSince(begin), 50*time.Second)
	})
}

// Rule 11: also a call that was given up may bring a store's wish for a pause.
func TestRule11RetryAfterComesLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		join(t, d, "a")
		sleep(time.Second)
		b := join(t, d, "b", polled)
		sleep(2*T + T/4)
		const late, pause = 5 * time.Second, 50 * time.Second
		b.store.Inject(func(memory.Op) memory.Fault {
			return memory.Fault{Hang: after(late), Err: &le.RetryAfterError{After: pause, Err: errSlowDown}}
		})
		begin := time.Now()
		sleep(10 * time.Minute)
		apart(t, b.opsSince(begin.Add(late)), pause) // a call that came before the first wish knew of none
	})
}

// refusedFeed is a store that reads, and whose feed asks for a pause.
type refusedFeed struct {
	le.RaceDecider
	pause time.Duration
	begun *[]le.StoreOp
}

func (f refusedFeed) Changes(context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		*f.begun = append(*f.begun, le.StoreOp{Start: time.Now()})
		yield(nil, fmt.Errorf("watching: %w", &le.RetryAfterError{After: f.pause, Err: errSlowDown}))
	}
}

// Rule 11: a pause that the store asks for in answer to a feed is kept by the feed. Reads go on: a store
// that serves them need not wait for its feed.
func TestRule11RetryAfterOfAFeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		join(t, d, "a")
		sleep(time.Second)
		var begun []le.StoreOp
		const pause = 50 * time.Second
		b := join(t, d, "b", func(c *config) {
			c.Decider = refusedFeed{c.Decider.(*memory.Decider).Polled(), pause, &begun}
		})
		sleep(10 * time.Minute)
		apart(t, begun, pause)
		if n := len(b.opsSince(time.Time{})); n < 19 {
			t.Errorf("%d reads in ten minutes", n)
		}
	})
}

// Rule 11: a standby that has failed twice polls as often as ever when a few polls have worked.
func TestRule11AStandbyRecovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		join(t, d, "a")
		sleep(time.Second)
		b := join(t, d, "b", polled)
		sleep(2 * T)
		b.store.Inject(memory.Fail(errSlowDown).Times(2))
		sleep(10 * T)
		begin := time.Now()
		sleep(10 * T)
		if n := len(b.opsSince(begin)); n < 19 {
			t.Errorf("%d polls in 10 terms, want 20", n)
		}
	})
}

// Rule 11: candidates that have not read anything yet ask no more often than standbys, whether the
// store refuses them or does not answer.
func TestRule11ColdStartInAnOutage(t *testing.T) {
	for name, fault := range map[string]memory.Faults{
		"refused": memory.Fail(errSlowDown),
		"hangs":   memory.Always(memory.Fault{AnswerDelay: 10 * time.Hour}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := join(t, memory.NewDecider(), "a", func(c *config) { c.Decider.(*memory.Decider).Inject(fault) }, polled)
				sleep(10 * time.Minute)
				if n, most := len(a.opsSince(time.Time{})), int(10*time.Minute/T)+3; n > most {
					t.Errorf("%d requests in ten minutes, want at most %d", n, most)
				}
			})
		})
	}
}

// Rule 11: a candidate that has been ousted is a standby, even while its callback runs.
func TestRule11OustedIsNotUrgent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		end := make(chan struct{})
		a := join(t, d, "a", polled, func(c *config) {
			c.OnElected = func(context.Context, *le.TimeView) { <-end }
		})
		sleep(T)
		d.Replace(rival(first + 5))
		sleep(T / 2)
		a.follows(t)
		a.store.Inject(memory.LoseRequests())
		begin := time.Now()
		sleep(10 * time.Minute)
		if n, most := len(a.opsSince(begin)), int(10*time.Minute/T)+3; n > most {
			t.Errorf("%d requests in ten minutes, want at most %d", n, most)
		}
		close(end)
	})
}

// A standby whose second acquisition lands, and is not answered, learns so at once: it need not wait
// for as long as with its next attempt.
func TestRule11LandedAcquisitionIsFoundSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(first))
		writes := 0
		var landed time.Time
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Faults(func(memory.Op) memory.Fault {
				switch writes++; writes {
				case 1:
					return memory.Fault{Err: errSlowDown}
				case 2:
					landed = time.Now()
					return memory.Fault{Err: memory.ErrLost, Lands: true}
				}
				return memory.Fault{}
			}).On(memory.Write))
		}, polled)
		sleep(4 * T)
		a.leads(t)
		if took := a.leadership(t, 0).from.Sub(landed); took > 3*T/32 {
			t.Errorf("it leads %v after its acquisition has landed", took)
		}
	})
}
