//go:build go1.25

package rules

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// detained is a store that keeps back the answer of one call, whatever its ctx says.
type detained struct {
	le.RaceDecider
	mu          sync.Mutex
	read, write chan struct{} // the next call of its kind is answered when it is closed
	refused     bool          // and then as a lost race, as by the client's own retry
}

// keep keeps back the answer of the next call of a kind.
func (d *detained) keep(kind *chan struct{}, until chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*kind = until
}

// await returns when the answer may be given, and reports whether it was kept back.
func (d *detained) await(kind *chan struct{}) bool {
	d.mu.Lock()
	c := *kind
	*kind = nil
	d.mu.Unlock()
	if c != nil {
		<-c
	}
	return c != nil
}

func (d *detained) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := d.RaceDecider.ReadCurrent(ctx)
	d.await(&d.read)
	return e, err
}

func (d *detained) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := d.RaceDecider.WriteEntry(ctx, e)
	if d.await(&d.write) && d.refused {
		now := e.Clone()
		now.Token = token
		return nil, &le.LostRaceError{Current: now}
	}
	return token, err
}

// Rule 7: the answer to a call that was given up does not close the question that a
// later write has opened: nothing is written before a read that began after it.
func TestRule07LateAnswersCloseNoQuestion(t *testing.T) {
	for _, what := range []string{"read", "write", "refused write"} {
		scene(t, what, func(t *testing.T) {
			late := make(chan struct{})
			h := &detained{refused: what == "refused write"}
			a := join(t, memory.NewDecider(), "a", polled, func(c *config) { h.RaceDecider, c.Decider = c.Decider, h })
			synctest.Wait()
			if what == "read" { // of the one that asks what became of the extension at 7 s
				a.store.Inject(memory.LoseRequests().On(memory.Write).Times(1))
				h.keep(&h.read, late)
			} else {
				h.keep(&h.write, late)
			}
			sleep(12 * time.Second) // given up, read, and gone on
			a.leads(t)
			a.store.Inject(func(op memory.Op) memory.Fault {
				return memory.Fault{Err: memory.ErrLost, Lands: op.Kind == memory.Write}
			})
			for begin := time.Now(); len(a.opsSince(begin, le.OpExtend)) == 0; {
				sleep(100 * time.Millisecond)
			}
			sleep(100 * time.Millisecond)
			close(late)
			told := time.Now()
			sleep(5 * time.Second)
			if n := len(a.opsSince(told, le.OpExtend)); n > 0 {
				t.Errorf("%d writes, though the outcome of the last one is open and no read has worked since", n)
			}
			a.store.Inject(nil)
			sleep(time.Second)
			a.leads(t)
		})
	}
}

// Rule 5: a read that began before the record became acquirable does not count,
// however late it was answered.
func TestRule05ReadsCountFromTheirStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		d.Replace(held)
		a := join(t, d, "a", faulty(memory.Always(memory.Fault{AnswerDelay: 3 * time.Second}).On(memory.Read)), polled, func(c *config) { c.PollInterval = time.Second })
		sleep(2 * T) // one read follows the other: that of 15 s is answered at 18 s, 2 s after TermExpiry + S
		a.leads(t)
		last, claimed := time.Time{}, a.opsSince(time.Time{}, le.OpAcquire)[0].Start
		for _, op := range a.opsSince(time.Time{}, le.OpRead) {
			if !op.Start.After(claimed) {
				last = op.Start
			}
		}
		if last.Before(held.TermExpiry.Add(S)) {
			t.Errorf("claimed by a read that began %v before TermExpiry + S", held.TermExpiry.Add(S).Sub(last))
		}
	})
}

// Rule 6: nor is what is read from a store that was set back acquired while the leadership
// that is known may live.
func TestRule06StoreSetBackUnderALivingLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(5)
		d.Replace(held)
		a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
		sleep(2 * time.Second)
		old := rival(4)
		old.TermExpiry = time.Now().Add(-time.Minute)
		d.Replace(old)
		sleep(time.Until(held.TermExpiry.Add(S)) - time.Nanosecond)
		if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n > 0 {
			t.Fatalf("%d writes while the view of leadership 5 may be alive", n)
		}
		sleep(T + S + 2*time.Second) // its write has shown that the store was set back
		a.leads(t)
		if got := a.View().ElectionNumber(); got != 7 {
			t.Errorf("number %d, want 7", got)
		}
	})
}

const goneBack = "the store has gone back"

// A record that was deleted, and begun anew by one who knew nothing, is no news to those who
// know more. They say so, once, after a term; and again if it happens again.
func TestStoreGoneBackIsSaid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(&le.RaceEntry{ElectionNumber: 41, Incarnation: "x", TermLength: T, TermExpiry: time.Now()})
		var log, watched lines
		b := join(t, d, "b", polled, logged(&log))
		watch(t, le.WatchConfig{Decider: d.Polled(), MaxClockSkew: S, Logger: watched.logger()})
		sleep(T)
		b.leads(t)
		for i := 1; i <= 2; i++ {
			d.Replace(&le.RaceEntry{LeaderID: "fresh", ElectionNumber: 1, Incarnation: "y", TermLength: time.Hour, TermExpiry: time.Now().Add(time.Hour)})
			sleep(T)
			if n := log.count(goneBack); n != i-1 {
				t.Errorf("%d: said %d times within a term, in which a replica may lag:\n%s", i, n, &log)
			}
			sleep(10 * T)
			for _, j := range []*lines{&log, &watched} {
				if n := j.count(goneBack); n != i {
					t.Errorf("%d: said %d times:\n%s", i, n, j)
				}
			}
			if log.count("known=") == 0 || log.count("read=1") == 0 {
				t.Errorf("it does not say which:\n%s", &log)
			}
			d.Replace(&le.RaceEntry{ElectionNumber: le.ElectionNumber(100 * i), Incarnation: "z", TermLength: T, TermExpiry: time.Now()}) // as Reset
			sleep(2 * T)
			b.leads(t)
		}
	})
}

// A record that is gone is said at once, by leaders and observers alike: the leader writes it again,
// and nobody would know. Once for each time.
func TestRecordThatIsGoneIsSaid(t *testing.T) {
	for kind, hide := range map[string]func(*memory.Decider) le.RaceDecider{
		"pushed": func(d *memory.Decider) le.RaceDecider { return d },
		"polled": func(d *memory.Decider) le.RaceDecider { return d.Polled() },
	} {
		scene(t, kind, func(t *testing.T) {
			d := memory.NewDecider()
			var led, watched lines
			a := join(t, d, "a", func(c *config) { c.Decider = hide(c.Decider.(*memory.Decider)) }, logged(&led))
			watch(t, le.WatchConfig{Decider: hide(d.Handle()), MaxClockSkew: S, PollInterval: time.Second, Logger: watched.logger()})
			sleep(2 * T)
			for i := 1; i <= 2; i++ {
				if i == 1 {
					d.Replace(nil)
				} else {
					d.Replace(&le.RaceEntry{})
				}
				sleep(T / 2)
				for who, j := range map[string]*lines{"leader": &led, "observer": &watched} {
					if n := j.count("the record is gone"); n != i {
						t.Errorf("%d: the %s has said it %d times:\n%s", i, who, n, j)
					}
				}
				sleep(T)
				a.leads(t)
			}
			if a.count() != 1 {
				t.Errorf("%d leaderships", a.count())
			}
		})
	}
}

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

// A feed tells of an acquisition that is undone, and another takes its number.
func TestUndoneAcquisition(t *testing.T) {
	scenes{
		"a read decides, and observers are told at once": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(4))
			var told []string
			reads := 0
			observer := d.Handle()
			observer.Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Read {
					reads++
				}
				return memory.Fault{}
			})
			stop := watch(t, le.WatchConfig{Decider: observer}, func(e le.RaceEntry) { told = append(told, e.LeaderID) })
			sleep(time.Second)
			d.Tell(other(5))
			sleep(time.Second)
			d.Tell(nil)
			d.Replace(rival(5))
			sleep(time.Second)
			d.Tell(other(5)) // again, but now it is known which it is
			sleep(time.Second)
			if stop(); len(told) != 3 || told[1] != "other" || told[2] != "rival" {
				t.Errorf("told of %q", told)
			}
			if reads != 1 {
				t.Errorf("%d reads, want one", reads)
			}
		},
		"by one's own": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(vacantAt(4))
			a := join(t, d, "a", faulty(memory.Slow(2*time.Second).On(memory.Write).Times(1)))
			sleep(500 * time.Millisecond)
			d.Tell(other(5))
			sleep(200 * time.Millisecond)
			d.Tell(nil)
			sleep(T + S + time.Second) // the store may have been set back, and others lead
			a.follows(t)
			sleep(2 * time.Second)
			a.leads(t)
			seen := a.seenAll()
			if e := a.Leader(); e.LeaderID != "a" || a.leadership(t, 0).number != 6 || seen[len(seen)-1].LeaderID != "a" {
				t.Errorf("with leadership %d, Leader returns %+v, and LeaderChanged was last told of %+v", a.leadership(t, 0).number, e, seen[len(seen)-1])
			}
		},
		"by another process of that LeaderID": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(4))
			a := join(t, d, "a")
			sleep(time.Second)
			undone, landed := rival(5), rival(5)
			undone.Incarnation, landed.Incarnation = "undone's", "landed's"
			d.Tell(undone)
			sleep(time.Second)
			d.Tell(nil)
			d.Replace(landed)
			sleep(time.Second)
			var told []string
			for _, e := range a.seenAll() {
				told = append(told, e.Incarnation)
			}
			if !slices.Equal(told, []string{"rival's", "undone's", "landed's"}) {
				t.Errorf("told of %q", told)
			}
		},
	}.run(t)
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

// undoneRelease has the feed tell of a's first release, which then fails, and has not landed.
func undoneRelease(d *memory.Decider, a *member) (failed *bool) {
	failed = new(bool)
	a.store.Inject(func(op memory.Op) (f memory.Fault) {
		if op.Kind == memory.Write && op.Entry.Vacant() && !*failed {
			*failed = true
			d.Tell(op.Entry)
			f.Err, f.AnswerDelay = memory.ErrLost, time.Second
		}
		return f
	})
	return failed
}

// Rule 9: a feed may tell of a release that then fails and is undone. Who leaves reads, and releases again.
func TestRule09ReleaseThatIsUndone(t *testing.T) {
	for _, how := range []string{"stops", "resigns"} {
		scene(t, how, func(t *testing.T) {
			d, a := leader(t)
			undoneRelease(d, a)
			if how == "stops" {
				go a.Resign(t.Context())
				sleep(1500 * time.Millisecond) // the release has failed, and nothing was read yet
				d.Tell(nil)
				a.quit()
			} else {
				must(t, a.Resign(t.Context()))
			}
			if e := d.Entry(); !e.Vacant() {
				t.Errorf("the record is %+v, want it released", e)
			}
		})
	}
}

// As TestRule09ReleaseThatIsUndone, but the work takes longer to end than half a term.
func TestRule09ReleaseThatIsUndoneAfterALongDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, a := leader(t, func(c *config) {
			c.DrainTimeout = T
			c.OnElected = func(ctx context.Context, v *le.TimeView) { <-ctx.Done(); time.Sleep(9 * time.Second) }
		})
		failed := undoneRelease(d, a)
		a.quit()
		d.Tell(nil)
		if e := d.Entry(); !*failed || !e.Vacant() {
			t.Errorf("the record is %+v, want it released", e)
		}
	})
}

// credulous takes whatever comes back for the answer to a write.
type credulous struct {
	le.RaceDecider
	lies   bool // nothing is written
	answer func(*le.RaceEntry) le.LeaderToken
}

func (c *credulous) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	if !c.lies {
		if _, err := c.RaceDecider.WriteEntry(ctx, e); err != nil {
			return nil, err
		}
	}
	return c.answer(e), nil
}

// TestRule19SuccessIsProved: a success without a token, or with the one that was written over, is an open
// question. It is read, and only that decides.
func TestRule19SuccessIsProved(t *testing.T) {
	for what, answer := range map[string]func(*le.RaceEntry) le.LeaderToken{
		"no token":  func(*le.RaceEntry) le.LeaderToken { return nil },
		"the older": func(e *le.RaceEntry) le.LeaderToken { return e.Token },
	} {
		for _, lies := range []bool{true, false} {
			scene(t, what, func(t *testing.T) {
				d := memory.NewDecider()
				d.Replace(vacantAt(7))
				a := join(t, d, "a", func(c *config) {
					c.Decider = &credulous{c.Decider.(*memory.Decider).Polled(), lies, answer}
				})
				sleep(2 * T)
				if !lies {
					a.leads(t) // the record shows it
					return
				}
				if a.follows(t); a.count() > 0 {
					t.Errorf("it has led by what was never written")
				}
				if ops := a.opsSince(time.Time{}, le.OpAcquire); len(ops) == 0 || ops[0].Err == nil {
					t.Errorf("%+v: want an error", ops)
				}
			})
		}
	}
}
