//go:build go1.25

package rules

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
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
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Always(memory.Fault{AnswerDelay: 2 * time.Second}).On(memory.Read))
		}, polled)
		sleep(2 * T) // reads begin at 0, 7.5 and 15 s; the last is answered at 17 s, 1 s after TermExpiry + S
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

// Lapsed is told after a read that began at or past TermExpiry + S: a record that was
// extended while an earlier one was on its way back has not lapsed.
func TestWatchLapsedCountsReadsFromTheirStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		d.Replace(held)
		s := observe(t, d, true, 0)
		s.store.Inject(memory.Always(memory.Fault{AnswerDelay: 2 * time.Second}).On(memory.Read))
		sleep(15500 * time.Millisecond) // a read is on its way back since 15 s
		held.Extension, held.TermExpiry = 1, time.Now().Add(T)
		d.Replace(held)
		sleep(5 * time.Second)
		for _, what := range s.list() {
			if what == "lapsed 3" {
				t.Errorf("told of a lapse of what was extended: %q", s.list())
			}
		}
	})
}

// Rule 6: where the store was set back, to a leadership that lives, what is known does not
// shorten the wait for what is read, nor the other way round.
func TestRule06StoreSetBackToALivingLeadership(t *testing.T) {
	for name, known := range map[string]*le.RaceEntry{
		"from a reservation": {ElectionNumber: 5, Extension: 9, TermLength: T, Incarnation: "x", Successor: "c"},
		"from a vacancy":     {ElectionNumber: 5, Extension: 9, TermLength: T, Incarnation: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				known.TermExpiry = time.Now().Add(5 * time.Second)
				d.Replace(known)
				var sick atomic.Bool
				sick.Store(known.Successor == "")
				a := join(t, d, "a", polled, func(c *config) {
					c.PollInterval = time.Second
					if sick.Load() { // so that it does not claim the vacancy at once
						c.Healthy = func(context.Context) error {
							if sick.Load() {
								return context.DeadlineExceeded
							}
							return nil
						}
					}
				})
				sleep(2 * time.Second)
				e := rival(4)
				d.Replace(e)
				sleep(2 * time.Second)
				sick.Store(false)
				for range 20 {
					sleep(5 * time.Second)
					e.Extension, e.TermExpiry = e.Extension+1, time.Now().Add(T)
					d.Replace(e)
				}
				if n := len(a.opsSince(time.Time{}, le.OpAcquire)); n > 0 {
					t.Errorf("claimed the record of a living leader %d times, and led %d times", n, a.count())
				}
				sleep(2*(T+S) + 2*time.Second)
				a.leads(t)
			})
		})
	}
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

// Rule 6: a store that is set back twice in a term does not hide whom a read has shown in between: neither
// a follower nor the leader that was robbed of the record takes the vacancy while that view may be alive.
// A release does not end the wait: nobody knows who led after it, and was lost.
func TestRule06StoreSetBackTwice(t *testing.T) {
	for _, leads := range []bool{false, true} {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprintf("under a leader %t, released %t", leads, released), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					d := memory.NewDecider()
					if !leads {
						held := rival(5)
						held.TermExpiry = time.Now().Add(5 * time.Second)
						d.Replace(held)
					}
					a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
					sleep(2 * time.Second)
					between := rival(4)
					d.Replace(between)
					sleep(8 * time.Second) // a has read it; its own extension was refused
					vacancy := &le.RaceEntry{ElectionNumber: 3, Incarnation: "x", TermLength: T}
					if released {
						vacancy.ElectionNumber, vacancy.Extension, vacancy.Incarnation = 4, 1, between.Incarnation
					}
					d.Replace(vacancy)
					before := a.count()
					sleep(T - time.Second)
					if a.count() != before {
						t.Error("led while a view that was lost may be alive")
					}
					sleep(T + 2*S + time.Second)
					a.leads(t)
				})
			})
		}
	}
}

// Rule 6: a reservation whose end a wrong clock has set hours ahead is waited for by the monotonic clock,
// as it would be alone, if the store was set back from it to something that must be waited for as well.
func TestRule06StoreSetBackFromALongReservation(t *testing.T) {
	for name, later := range map[string]func() *le.RaceEntry{
		"to a vacancy":         func() *le.RaceEntry { return &le.RaceEntry{ElectionNumber: 3, Incarnation: "x", TermLength: T} },
		"to an emptied record": func() *le.RaceEntry { return &le.RaceEntry{} },
		"to a living leader":   func() *le.RaceEntry { return rival(4) },
		"to a shorter reserve": func() *le.RaceEntry {
			return &le.RaceEntry{ElectionNumber: 3, Incarnation: "x", TermLength: T, Successor: "d", TermExpiry: time.Now().Add(T)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				d.Replace(&le.RaceEntry{ElectionNumber: 5, Incarnation: "x", TermLength: T, Successor: "c", TermExpiry: time.Now().Add(5 * time.Hour)})
				a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
				sleep(2 * time.Second)
				d.Replace(later())
				sleep(T - 2*time.Second)
				a.follows(t)
				sleep(2*(T+S) + 4*time.Second)
				a.leads(t)
			})
		})
	}
}

// A state that was seen, passed and is read again counts from when it was seen again:
// whoever leads by it may have gone on where nobody saw it.
func TestUnsynchronizedStoreSetBackTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		state := func(extension uint64) {
			e := rival(3)
			e.Unsynchronized, e.Extension = true, extension
			e.TermExpiry = time.Date(2000, 1, 1, 0, 0, int(extension), 0, time.UTC)
			d.Replace(e)
		}
		state(2)
		a := join(t, d, "a", unsynchronized, polled, func(c *config) { c.PollInterval = time.Second })
		for _, extension := range []uint64{1, 3} {
			sleep(1500 * time.Millisecond)
			state(extension)
		}
		sleep(11 * time.Second)
		state(1) // at 14 s
		sleep(T + S)
		if a.count() > 0 {
			t.Error("led within a term after the store was seen to have gone back")
		}
		sleep(T + S + 2*time.Second)
		a.leads(t)
	})
}

// Rule 7: a release as well waits for what became of the last write.
func TestRule07ReleaseReadsFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		synctest.Wait()
		a.store.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
		sleep(7 * time.Second) // the extension has landed, and its answer is lost
		a.leads(t)
		begin := time.Now()
		a.quit()
		ops := a.opsSince(begin, le.OpRead, le.OpRelease)
		if len(ops) != 2 || ops[0].Kind != le.OpRead || ops[1].Kind != le.OpRelease || ops[1].Err != nil {
			t.Errorf("%+v, want a read and a release", ops)
		}
		if !d.Entry().Vacant() {
			t.Error("not released")
		}
	})
}

// Rule 9: the time for the release counts from when the callbacks have returned, not
// from when the campaign was stopped.
func TestRule09ReleaseAfterALongDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.DrainTimeout = time.Minute
			c.OnOusting = func(context.Context) { time.Sleep(40 * time.Second) }
		})
		sleep(time.Second)
		a.stop()
		sleep(39900 * time.Millisecond)
		a.store.Inject(memory.LoseRequests().On(memory.Write).Times(1)) // the first try
		<-a.Done()
		if !d.Entry().Vacant() {
			t.Errorf("left behind: %+v", d.Entry())
		}
	})
}

// Lapsed and a later record of the leadership that comes back are both told, also where the
// callback was busy meanwhile.
func TestWatchTellsLapsedToASlowCallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		d.Replace(held)
		s := observe(t, d, false, 20*time.Second) // busy with 3/0 until 20 s; the lapse is at 16 s
		sleep(18 * time.Second)
		held.Extension, held.TermExpiry = 1, time.Now().Add(T)
		d.Replace(held)
		sleep(25 * time.Second)
		if got := s.list(); len(got) < 3 || got[0] != "3/0 rival" || got[1] != "lapsed 3" || got[2] != "3/1 rival" {
			t.Errorf("told %q", got)
		}
	})
}

// Rule 16: a check of Healthy that came too late is forgotten when it returns, and the
// next one asked, also when that is well only then.
func TestRule16LateHealthIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		n := 0
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			c.Healthy = func(context.Context) error {
				if n++; n == 2 {
					<-hang
				}
				return nil
			}
		})
		sleep(2 * T)
		a.follows(t)
		close(hang)
		sleep(T)
		a.leads(t)
	})
}

// Rule 14: no two writes are alike, also where the earlier one may land yet.
func TestRule14OpenWritesAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		var written []*le.RaceEntry
		a := join(t, d, "a", polled)
		synctest.Wait()
		a.store.Inject(memory.Faults(func(op memory.Op) memory.Fault {
			if written = append(written, op.Entry); len(written)%3 != 0 {
				return memory.Fault{Err: memory.ErrLost}
			}
			return memory.Fault{}
		}).On(memory.Write))
		sleep(5 * T)
		a.leads(t)
		for i := 1; i < len(written); i++ {
			if e, last := written[i], written[i-1]; e.ElectionNumber == last.ElectionNumber && e.Extension <= last.Extension {
				t.Errorf("write %d is %d/%d, after %d/%d", i, e.ElectionNumber, e.Extension, last.ElectionNumber, last.Extension)
			}
		}
	})
}

// Where a store was set back to a vacancy, nobody leads by it: a leader whose number is newer goes
// on at once, also if the vacancy is reserved for another, or on hold, or of its own making.
func TestLeaderGoesOnOverWhatNobodyLeadsBy(t *testing.T) {
	for name, change := range map[string]func(*le.RaceEntry){
		"reserved": func(e *le.RaceEntry) { e.Successor, e.TermExpiry = "c", e.TermExpiry.Add(T) },
		"on hold":  func(e *le.RaceEntry) { e.Hold = time.Hour },
		"its own":  func(e *le.RaceEntry) { e.Incarnation, e.Successor, e.TermExpiry = "", "c", e.TermExpiry.Add(T) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				d.Replace(&le.RaceEntry{ElectionNumber: 1, Extension: 1, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"})
				a := join(t, d, "a")
				sleep(time.Second)
				a.leads(t)
				old := &le.RaceEntry{ElectionNumber: 1, Extension: 5, TermExpiry: time.Now(), TermLength: T, Incarnation: "x"}
				change(old)
				if old.Incarnation == "" {
					old.Incarnation = d.Entry().Incarnation
				}
				d.Replace(old)
				sleep(2 * T)
				a.leads(t)
				if a.count() != 1 || d.Entry().ElectionNumber != 2 {
					t.Errorf("it has led %d times, on record is %+v", a.count(), d.Entry())
				}
			})
		})
	}
}
