//go:build go1.25

package rules

import (
	"context"
	"slices"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// vacantAt is a record that was released.
func vacantAt(number le.ElectionNumber) *le.RaceEntry {
	return &le.RaceEntry{ElectionNumber: number, Extension: 1, Incarnation: "of before", TermExpiry: time.Now(), TermLength: T}
}

// other is what a candidate named "other" writes.
func other(number le.ElectionNumber) *le.RaceEntry {
	e := rival(number)
	e.LeaderID, e.Incarnation = "other", "other's"
	return e
}

// A feed tells of an acquisition that is undone, and another takes its number: observers are told
// of that one at once, and not only when it is extended. A feed does not decide which it is: it is read.
func TestUndoneAcquisitionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(vacantAt(4))
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		done, reads := make(chan struct{}), 0
		observer := d.Handle()
		observer.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Read {
				reads++
			}
			return memory.Fault{}
		})
		go func() {
			defer close(done)
			_ = le.WatchConfig{Decider: observer}.Watch(ctx, func(_ context.Context, e le.RaceEntry) { told = append(told, e.LeaderID) })
		}()
		sleep(time.Second)
		d.Tell(other(5))
		sleep(time.Second)
		d.Tell(nil)
		d.Replace(rival(5))
		sleep(time.Second)
		d.Tell(other(5)) // again, but now it is known which it is
		sleep(time.Second)
		cancel()
		if <-done; len(told) != 3 || told[1] != "other" || told[2] != "rival" {
			t.Errorf("told of %q", told)
		}
		if reads != 1 {
			t.Errorf("%d reads, want one", reads)
		}
	})
}

// So are standbys.
func TestUndoneAcquisitionIsReadByAStandby(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(other(4))
		a := join(t, d, "a")
		sleep(time.Second)
		d.Tell(other(5))
		sleep(time.Second)
		d.Tell(nil)
		d.Replace(rival(5))
		sleep(time.Second)
		if e := a.Leader(); e.LeaderID != "rival" || len(a.opsSince(time.Time{})) > 1 {
			t.Errorf("Leader returns %+v, after %d operations", e, len(a.opsSince(time.Time{})))
		}
	})
}

// A feed that tells of two in turns, again and again, is no reason to read in a hot loop.
func TestRule11DisputesAreReadNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(other(4))
		a := join(t, d, "a")
		sleep(time.Second)
		for n := range 1000 {
			d.Tell(other(5 + le.ElectionNumber(n/2)))
			sleep(time.Millisecond)
			d.Tell(rival(5 + le.ElectionNumber(n/2)))
			sleep(time.Millisecond)
		}
		if n := len(a.opsSince(time.Time{})); n > 6 { // with a pause of T/32 between two
			t.Errorf("%d reads in two seconds", n)
		}
	})
}

// The same where the other is this candidate: all are told that it leads when it does. What a feed
// tells then by that number is no news.
func TestUndoneAcquisitionIsReplacedByOnesOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(vacantAt(4))
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(2 * time.Second).On(memory.Write).Times(1))
		})
		sleep(500 * time.Millisecond)
		d.Tell(other(5))
		sleep(200 * time.Millisecond)
		d.Tell(nil)
		sleep(1500 * time.Millisecond)
		a.leads(t)
		seen := a.seenAll()
		if e := a.Leader(); e.LeaderID != "a" || a.leadership(t, 0).number != 5 || seen[len(seen)-1].LeaderID != "a" {
			t.Errorf("with leadership %d, Leader returns %+v, and LeaderChanged was last told of %+v", a.leadership(t, 0).number, e, seen[len(seen)-1])
		}
	})
}

// A preferred candidate that knows of a leader whose term is over, while reads return an older
// record that is extended (the store was set back), reads no more often for that.
func TestPreferReadsNoMoreAfterASetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(10))
		b := join(t, d, "b", polled, func(c *config) { c.Priority = 5 })
		sleep(T / 2)
		from := time.Now()
		for n := range 40 {
			e := other(7)
			e.Extension = uint64(n)
			d.Replace(e)
			sleep(T / 2)
		}
		if n := len(b.opsSince(from)); n > 90 { // four a second, while the newer term may run
			t.Errorf("%d operations in 20 terms", n)
		}
	})
}

// Rule 14: a record is what it says. A feed tells of a request that is undone, and an operator's lands in its
// place, of the same order and Incarnation: what is read replaces what was told of, for observers and
// for candidates.
func TestRule14UndoneRequestIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(5))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var told []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.WatchConfig{Decider: d.Handle()}.Watch(ctx, func(_ context.Context, e le.RaceEntry) { told = append(told, e.Successor) })
		}()
		a := join(t, d, "a")
		sleep(time.Second)
		request := func(id string) *le.RaceEntry {
			e := d.Entry()
			e.Extension, e.Successor = 1, id
			return e
		}
		undone, landed := request("undone"), request("landed")
		d.Tell(undone)
		sleep(time.Second)
		if got := a.Leader().Successor; got != "undone" {
			t.Fatalf("Leader names %q", got)
		}
		d.Tell(nil)
		d.Replace(landed)
		sleep(time.Second)
		if got := a.Leader().Successor; got != "landed" {
			t.Errorf("Leader names %q, want what is read", got)
		}
		cancel()
		if <-done; !slices.Equal(told, []string{"", "undone", "landed"}) {
			t.Errorf("the observer is told of %q", told)
		}
	})
}

// A store that is set back to an older state of the term, over which an operator then makes a request, has a
// record of the order that the feed has told of, with an earlier end. The leader may have a view by the later.
func TestSetBackUnderARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(5))
		a := join(t, d, "a")
		sleep(T / 2)
		extended := rival(5)
		extended.Extension = 1
		d.Tell(extended)
		sleep(time.Second)
		d.Tell(nil)
		request := rival(5)
		request.TermExpiry, request.Extension, request.Successor = extended.TermExpiry.Add(-T/2), 1, "nobody"
		d.Replace(request)
		sleep(time.Until(extended.TermExpiry.Add(S)) - time.Millisecond)
		if e := d.Entry(); e.LeaderID != "rival" {
			t.Errorf("taken before the end of the term that was told of: %+v", e)
		}
		sleep(T)
		a.leads(t)
	})
}

// Rule 9: a feed may tell of a release that then fails and is undone. Who leaves reads, and releases again.
func TestRule09ReleaseThatIsUndone(t *testing.T) {
	for _, how := range []string{"stops", "resigns"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				a := join(t, d, "a")
				sleep(time.Second)
				failed := false
				a.store.Inject(func(op memory.Op) (f memory.Fault) {
					if op.Kind == memory.Write && op.Entry.Vacant() && !failed {
						failed = true
						d.Tell(op.Entry)
						f.Err, f.AnswerDelay = memory.ErrLost, time.Second
					}
					return f
				})
				if how == "stops" {
					go a.Resign(t.Context())
					sleep(1500 * time.Millisecond) // the release has failed, and nothing was read yet
					d.Tell(nil)
					a.quit()
				} else if err := a.Resign(t.Context()); err != nil {
					t.Fatal(err)
				}
				if e := d.Entry(); !e.Vacant() {
					t.Errorf("the record is %+v, want it released", e)
				}
			})
		})
	}
}

// As TestRule09ReleaseThatIsUndone, but the work takes longer to end than half a term.
func TestRule09ReleaseThatIsUndoneAfterALongDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.DrainTimeout = T
			c.OnElected = func(ctx context.Context, v *le.TimeView) { <-ctx.Done(); time.Sleep(9 * time.Second) }
		})
		sleep(time.Second)
		failed := false
		a.store.Inject(func(op memory.Op) (f memory.Fault) {
			if op.Kind == memory.Write && op.Entry.Vacant() && !failed {
				failed = true
				d.Tell(op.Entry)
				f.Err, f.AnswerDelay = memory.ErrLost, time.Second
			}
			return f
		})
		a.quit()
		d.Tell(nil)
		if e := d.Entry(); !failed || !e.Vacant() {
			t.Errorf("the record is %+v, want it released", e)
		}
	})
}

// A feed tells of an extension by a clock that is hours ahead. It is undone, and the leader is gone: what no read
// returns is not waited for longer than that.
func TestPatienceWithWhatAFeedTells(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		e := rival(5)
		e.TermExpiry = e.TermExpiry.Add(2 * time.Hour)
		d.Replace(e)
		a := join(t, d, "a", stayOn)
		sleep(time.Second)
		extended := e.Clone()
		extended.Extension++
		extended.TermExpiry, extended.WriteID = e.TermExpiry.Add(time.Second), "undone"
		d.Tell(extended)
		sleep(time.Second)
		d.Tell(nil)
		begun := time.Now()
		for a.count() == 0 && time.Since(begun) < 3*time.Hour {
			sleep(time.Second)
		}
		if took := time.Since(begun); took > 4*T { // two terms, and the polls
			t.Errorf("it led after %v, want two terms and a poll", took)
		}
	})
}
