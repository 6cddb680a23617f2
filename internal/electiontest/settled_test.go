//go:build go1.25

package electiontest

import (
	"context"
	"iter"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Resign of a candidate whose acquisition is under way returns when what it won is
// released.
func TestContractResignWaitsForAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(2 * time.Second).On(memory.Write).Times(1))
		}, polled)
		sleep(100 * time.Millisecond) // it has not landed
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := d.Entry(); !e.Vacant() || e.ElectionNumber != first || a.count() > 0 {
			t.Errorf("the record is %+v after %d leaderships, want it won, and released", e, a.count())
		}
	})
}

// Rule 13, with a term so long that a call may hang for minutes: at the end it is given
// up in time for the release.
func TestRule13ACallThatHangsDoesNotKeepTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.TermLength = time.Hour })
		sleep(time.Second)
		a.leads(t)
		release := make(chan struct{})
		defer close(release)
		a.store.Inject(memory.Hang(release).On(memory.Write).Times(1))
		sleep(30 * time.Minute) // its extension hangs
		began := time.Now()
		a.quit()
		if e := d.Entry(); !e.Vacant() || time.Since(began) > 10*time.Second {
			t.Errorf("stopped after %v; the record is %+v, want it released", time.Since(began), e)
		}
	})
}

// told is a store whose feed does not tell the time of what it delivers.
type told struct{ *memory.Decider }

func (u told) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	if t, ok := e.Token.(unstampedToken); ok {
		e.Token = t.LeaderToken
	}
	return u.Decider.WriteEntry(ctx, e)
}

func (u told) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for e, err := range u.Decider.Changes(ctx) {
			if err == nil {
				e.Token = unstampedToken{e.Token}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// The clock is compared with the stamp of an answer also where a feed has told of the
// record before, without one.
func TestClockSkewByTheAnswerToWhatIsKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unround()
		a := join(t, memory.NewDecider(), "a", ahead(), func(c *config) {
			d := c.Decider.(*memory.Decider)
			d.Inject(memory.Always(memory.Fault{AnswerDelay: time.Second}).On(memory.Write))
			c.Decider = told{d}
		})
		sleep(T)
		if len(a.opsSince(time.Time{}, le.OpAcquire)) == 0 || a.count() > 0 {
			t.Errorf("it led %d times by a clock that the stamps prove wrong", a.count())
		}
	})
}

// Resign does not wait for an acquisition that did not happen for longer than a term of
// one's own, whatever term it would have taken.
func TestContractResignAwaitsATermAtMost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(3)
		e.TermLength, e.TermExpiry = 10*T, time.Now().Add(-T)
		d.Replace(e)
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseRequests().On(memory.Write).Times(1))
		}, polled)
		sleep(100 * time.Millisecond) // it was lost
		began := time.Now()
		if err := a.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > T {
			t.Errorf("Resign took %v", took)
		}
	})
}
