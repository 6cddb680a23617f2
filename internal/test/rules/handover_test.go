//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 18: Transfer on a held record sets Successor and raises Extension, and
// touches neither LeaderID nor TermExpiry. The leader drains and releases with
// the Successor named, who leads at once.
func TestRule18TransferFromALivingLeader(t *testing.T) {
	for _, kind := range []string{"feed", "poll"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				adjust := func(*config) {}
				if kind == "poll" {
					adjust = polled
				}
				d := memory.NewDecider()
				a := join(t, d, "a", adjust)
				synctest.Wait()
				b, c := join(t, d, "b", adjust), join(t, d, "c", adjust)
				sleep(time.Second)
				before := d.Entry()
				// See the record as Transfer leaves it: hold the feeds up.
				var request *le.RaceEntry
				operator := d.Handle()
				operator.Inject(func(op memory.Op) memory.Fault {
					if op.Kind == memory.Write {
						request = op.Entry
					}
					return memory.Fault{}
				})
				asked := time.Now()
				if err := le.Transfer(t.Context(), operator, "c"); err != nil {
					t.Fatal(err)
				}
				if request.Successor != "c" || request.LeaderID != "a" || !request.TermExpiry.Equal(before.TermExpiry) ||
					request.Incarnation != before.Incarnation || request.ElectionNumber != before.ElectionNumber || request.Extension != before.Extension+1 {
					t.Fatalf("the request is %+v over %+v", request, before)
				}
				if kind == "feed" {
					synctest.Wait()
				} else {
					sleep(T)
				}
				c.leads(t)
				a.follows(t)
				if b.count() != 0 {
					t.Fatal("b led in between")
				}
				if r := a.leadership(t, 0); !errors.Is(r.cause, le.ErrResigned) {
					t.Fatalf("cause %v, want ErrResigned", r.cause)
				}
				if e := d.Entry(); e.Successor != "" || e.ElectionNumber != first+1 {
					t.Fatalf("the acquisition left %+v", e)
				}
				limit := time.Duration(0)
				if kind == "poll" {
					limit = 6*time.Second + T/2
				}
				if took := c.leadership(t, 0).from.Sub(asked); took > limit {
					t.Fatalf("the hand-over took %v, want at most %v", took, limit)
				}
			})
		})
	}
}

// Rule 18: on a vacant record Transfer writes the reservation itself.
func TestRule18TransferOfAVacantRecord(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(&le.RaceEntry{ElectionNumber: 5, TermLength: T, TermExpiry: time.Now()})
		if err := le.Transfer(t.Context(), d, "c"); err != nil {
			t.Fatal(err)
		}
		if e := d.Entry(); !e.Vacant() || e.Successor != "c" || !e.TermExpiry.Equal(time.Now().Add(T)) || e.Extension != 1 {
			t.Fatalf("reservation %+v", e)
		}
		b := join(t, d, "b")
		sleep(T / 2)
		b.follows(t)
		c := join(t, d, "c")
		synctest.Wait()
		c.leads(t)
	})
}

// Rule 18: nobody to ask is said, not waited for.
func TestRule18NobodyToAsk(t *testing.T) {
	dead := rival(3)
	dead.TermExpiry = time.Now().Add(-time.Second)
	for name, e := range map[string]*le.RaceEntry{"no election yet": nil, "the term has run out": dead} {
		t.Run(name, func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(e)
			for _, err := range []error{le.Transfer(t.Context(), d, "b"), le.StepDown(t.Context(), d, false)} {
				if !errors.Is(err, le.ErrNoLeader) {
					t.Errorf("got %v, want ErrNoLeader", err)
				}
			}
			if got := d.Entry(); e != nil && got.Successor != "" {
				t.Errorf("written all the same: %+v", got)
			}
		})
	}
	d := memory.NewDecider()
	d.Replace(&le.RaceEntry{ElectionNumber: 5, TermExpiry: time.Now()})
	if err := le.StepDown(t.Context(), d, false); !errors.Is(err, le.ErrNoLeader) {
		t.Errorf("StepDown of a vacant record: %v, want ErrNoLeader", err)
	}
}

// Rule 18: Transfer aims at the leadership that it first read.
func TestRule18AimsAtOneLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(3))
		operator := d.Handle()
		operator.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Write && op.Entry.ElectionNumber == 3 {
				next := rival(4)
				next.LeaderID = "other"
				d.Replace(next)
			}
			return memory.Fault{}
		})
		err := le.Transfer(t.Context(), operator, "b")
		if !errors.Is(err, le.ErrLostRace) || !strings.Contains(err.Error(), `"other"`) {
			t.Fatalf("got %v, want ErrLostRace that names who leads now", err)
		}
		if e := d.Entry(); e.Successor != "" {
			t.Fatalf("the next leadership was asked: %+v", e)
		}
	})
}

// Transfer and StepDown outlast a store that loses requests and answers, and
// know their own request when they see it.
func TestRule18RequestsSurviveTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		b := join(t, d, "b")
		sleep(time.Second)
		operator := d.Handle()
		operator.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		if err := le.Transfer(t.Context(), operator, "b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.leads(t)
		sleep(2 * T)
		operator.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		if err := le.StepDown(t.Context(), operator, false); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.leads(t)
		operator.Inject(memory.LoseRequests())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := le.StepDown(ctx, operator, false); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, memory.ErrLost) {
			t.Fatalf("got %v, want the deadline and what the store said", err)
		}
		refused := fmt.Errorf("denied: %w", le.ErrPermanent)
		operator.Inject(memory.Fail(refused))
		if err := le.StepDown(t.Context(), operator, false); !errors.Is(err, le.ErrPermanent) {
			t.Fatalf("got %v, want ErrPermanent", err)
		}
		a.leads(t)
	})
}

// Rule 18: the vacancy of a leader that was asked to step down is reserved for nobody.
func TestRule18StepDownReservesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		join(t, d, "a")
		sleep(time.Second)
		if err := le.StepDown(t.Context(), d, false); err != nil {
			t.Fatal(err)
		}
		sleep(time.Second)
		if e := d.Entry(); !e.Vacant() || e.Successor != "" || e.TermExpiry.After(time.Now()) {
			t.Errorf("%+v", e)
		}
	})
}

// Asking for what is so already is no error; asking for nonsense is.
func TestRule18Arguments(t *testing.T) {
	d := memory.NewDecider()
	d.Replace(rival(1))
	if err := le.Transfer(t.Context(), d, "rival"); err != nil {
		t.Errorf("to the leader itself: %v", err)
	}
	for _, id := range []string{"", le.AnySuccessor} {
		if err := le.Transfer(t.Context(), d, id); err == nil {
			t.Errorf("Transfer to %q was taken", id)
		}
	}
	if err := le.StepDown(t.Context(), nil, false); err == nil {
		t.Error("a nil decider was taken")
	}
}

// Rule 3: a Successor who does not come loses the reservation after a term; the
// one who resigned and the others may then campaign.
func TestRule03ReservationEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		b := join(t, d, "b")
		sleep(time.Second)
		begin := time.Now()
		if err := le.Transfer(t.Context(), d, "nobody"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if e := d.Entry(); !e.Vacant() || e.Successor != "nobody" || !e.TermExpiry.Equal(time.Now().Add(T)) {
			t.Fatalf("released as %+v", e)
		}
		sleep(T - time.Millisecond)
		a.follows(t)
		b.follows(t)
		sleep(spread)
		if (a.Status() == le.Leading) == (b.Status() == le.Leading) {
			t.Fatalf("a is %v, b is %v after %v", a.Status(), b.Status(), time.Since(begin))
		}
	})
}

// Rule 3: a Successor left on a held record that expired reserves nothing.
func TestRule03SuccessorOfADeadLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		held.Successor = "nobody"
		d.Replace(held)
		b := join(t, d, "b")
		sleep(T + S + spread)
		b.leads(t)
		if e := d.Entry(); e.Successor != "" {
			t.Fatalf("the acquisition left the Successor: %+v", e)
		}
	})
}

// A candidate named by an operator leads at once although it cools down.
func TestRule15NamedWhileSittingOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		sleep(time.Second)
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := le.Transfer(t.Context(), d, "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.leads(t)
	})
}

// Rule 18: a request to hand over that is recorded between an acquisition and the
// read that shows it is granted: the record is released, without OnElected, and the
// requested one leads.
func TestRule18RequestMeetsAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			write := memory.LoseAnswers().On(memory.Write).Times(1)
			read := memory.Fail(errors.New("cut off")).On(memory.Read)
			begin := time.Now()
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if passed := time.Since(begin); op.Kind == memory.Read && passed > 0 && passed < 3*time.Second {
					return read(op)
				}
				return write(op)
			})
			polled(c)
		})
		sleep(time.Second)
		if e := d.Entry(); e.LeaderID != "a" || a.count() > 0 {
			t.Fatalf("the acquisition has not landed, or was not lost: %+v", e)
		}
		b := join(t, d, "b")
		if err := le.Transfer(t.Context(), d, "b"); err != nil {
			t.Fatal(err)
		}
		sleep(T / 2)
		if a.count() > 0 {
			t.Error("a led though it had been asked to hand over")
		}
		b.leads(t)
	})
}
