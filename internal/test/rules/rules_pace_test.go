//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 11: extensions start when half of the view's span has passed since the
// last confirmed one began.
func TestRule11ExtendsAtHalfTheView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		start := time.Now()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(time.Second).On(memory.Write))
		})
		sleep(30 * time.Second)
		for i, op := range a.opsSince(start, le.OpExtend) {
			if want := start.Add(time.Duration(i+1) * 7 * time.Second); !op.Start.Equal(want) {
				t.Errorf("extension %d began at %v, want %v", i, op.Start.Sub(start), want.Sub(start))
			}
		}
	})
}

// Rule 11: a lost race is an answer like any other, and no trouble: the next extension is no
// sooner for it.
func TestRule11LostRaceIsNoTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		sleep(time.Second)
		a.store.Inject(memory.Always(memory.Fault{Err: le.ErrLostRace, Lands: true}).On(memory.Write).Times(1))
		sleep(7 * time.Second)
		extended := time.Now()
		sleep(12 * time.Second)
		ops := a.opsSince(extended, le.OpExtend)
		if len(ops) == 0 || len(ops) > 2 {
			t.Fatalf("%d extensions in 12 s", len(ops))
		}
		near(t, "the next extension", ops[0].Start.Sub(extended), 6*time.Second, time.Second/2)
	})
}

// Rule 11: one store call at a time; an unanswered one is abandoned after about
// T/4; at most a few hang at once, for however long.
func TestRule11HungCallsAreAbandonedAndDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		synctest.Wait()
		release := make(chan struct{})
		before := runtime.NumGoroutine()
		a.store.Inject(memory.Hang(release))
		sleep(time.Hour)
		if more := runtime.NumGoroutine() - before; more > 5 {
			t.Errorf("%d more goroutines after an hour of a store that hangs", more)
		}
		for _, op := range a.opsSince(time.Time{}) {
			if op.Abandoned && op.Duration != T/4 {
				t.Errorf("%s abandoned after %v, want %v", op.Kind, op.Duration, T/4)
			}
		}
		a.follows(t)
		a.store.Inject(nil)
		close(release)
		sleep(2 * T)
		a.leads(t)
	})
}

// Rule 11: an outage of any length costs at most four operations a second,
// whatever the settings, and the first failure is retried well within the view.
func TestRule11OutagesAreNoHotLoops(t *testing.T) {
	faults := map[string]memory.Faults{
		"all requests lost":    memory.LoseRequests(),
		"writes refused":       memory.Fail(memory.ErrLost).On(memory.Write),
		"every write lost":     memory.Fail(le.ErrLostRace).On(memory.Write),
		"answers lost":         memory.LoseAnswers(),
		"reads fail":           memory.LoseRequests().On(memory.Read),
		"permanent, once used": memory.Fail(fmt.Errorf("denied: %w", le.ErrPermanent)),
	}
	for name, fault := range faults {
		for _, term := range []time.Duration{T, time.Second, 2 * le.MinTermLength, le.MinTermLength} {
			for _, poll := range []time.Duration{0, time.Millisecond} {
				t.Run(fmt.Sprintf("%s, T=%v, poll=%v", name, term, poll), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						a := join(t, d, "a", polled, func(c *config) {
							c.TermLength, c.MaxClockSkew, c.ClockPolicy, c.PollInterval = term, 0, le.SharedClock, poll
						})
						synctest.Wait()
						a.store.Inject(fault)
						if name == "all requests lost" || term >= time.Second {
							sleep(time.Second) // the healthy pace until it notices is not at issue
						}
						begin := time.Now()
						sleep(time.Minute)
						n, limit := len(a.opsSince(begin)), 4*60
						if name == "all requests lost" || name == "permanent, once used" {
							limit = 4 * 60
						} else if poll > 0 || term < time.Second {
							limit = 210 * 60 // reads work: the pace that was asked for, within bounds
						}
						if n > limit {
							t.Errorf("%d operations in a minute, want at most %d", n, limit)
						}
						if name != "all requests lost" {
							return
						}
						ops := a.opsSince(begin)
						for i := 4; i < len(ops); i++ {
							if span := ops[i].Start.Sub(ops[i-4].Start); span < time.Second {
								t.Errorf("five operations within %v of an outage", span)
							}
						}
					})
				})
			}
		}
	}
}

// Rule 11: a read that works does not reset the back-off of writes that fail.
func TestRule11ReadsDoNotResetTheBackOffOfWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.LoseRequests().On(memory.Write))
		})
		sleep(5 * time.Minute)
		ops := a.opsSince(time.Time{}, le.OpAcquire)
		if len(ops) < 15 {
			t.Fatalf("only %d attempts in five minutes", len(ops))
		}
		for i := range ops[1:] {
			gap := ops[i+1].Start.Sub(ops[i].Start)
			if i < 1 && gap > T/4 {
				t.Errorf("attempt %d came %v after the one before, want a quick retry", i+1, gap)
			}
			if i > 1 && gap < T {
				t.Errorf("attempt %d came %v after the one before: the back-off was reset", i+1, gap)
			}
		}
	})
}

// Rule 12: a standby reads before it writes, writes only to a record it knows to
// be acquirable, and on a healthy feed makes no requests at all.
func TestRule12StandbysCostLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		join(t, d, "a")
		synctest.Wait()
		pushed, polls := join(t, d, "b"), join(t, d, "c", polled)
		sleep(time.Second)
		begin := time.Now()
		sleep(100 * T)
		if n := len(pushed.opsSince(time.Time{})); n != 0 {
			t.Errorf("a standby on a feed made %d requests", n)
		}
		reads, writes := polls.opsSince(begin, le.OpRead), polls.opsSince(time.Time{}, le.OpAcquire)
		if len(reads) > 210 || len(writes) > 0 {
			t.Errorf("a polling standby made %d reads and %d writes in 100 terms", len(reads), len(writes))
		}
	})
}

// Rule 12: a feed that withholds an extension is found out by the read at
// TermExpiry + S, costs the leader nothing, and is started again.
func TestRule12SilentFeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		silent := make(chan struct{})
		b := join(t, d, "b", func(c *config) {
			n := 0
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Feed {
					if n++; n == 2 {
						return memory.Fault{Delay: time.Hour} // heeds its ctx
					}
				}
				return memory.Fault{}
			})
		})
		defer close(silent)
		sleep(T + S - time.Millisecond)
		if n := len(b.opsSince(time.Time{})); n > 0 {
			t.Fatalf("%d requests before TermExpiry + S", n)
		}
		sleep(2 * time.Second)
		a.leads(t)
		b.follows(t)
		if got := b.Leader().Extension; got < 2 {
			t.Fatalf("b still knows extension %d", got)
		}
		reads := len(b.opsSince(time.Time{}, le.OpRead))
		sleep(10 * T)
		if got := len(b.opsSince(time.Time{}, le.OpRead)); got > reads+1 {
			t.Fatalf("%d more reads: the feed was not started again", got-reads)
		}
		if w := b.opsSince(time.Time{}, le.OpAcquire); len(w) > 0 {
			t.Fatal("b wrote to a held record")
		}
	})
}

// Rule 12: a feed that fails is replaced by polling, and taken up again.
func TestRule12FailedFeed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		b := join(t, d, "b")
		sleep(time.Second)
		b.store.Inject(memory.LoseRequests().On(memory.Feed))
		begin := time.Now()
		sleep(10 * T)
		if n := len(b.opsSince(begin, le.OpRead)); n < 17 || n > 22 {
			t.Errorf("%d reads in ten terms without a feed, want about 20", n)
		}
		b.follows(t)
		a.leads(t)
		b.store.Inject(nil)
		sleep(2 * T)
		begin = time.Now()
		sleep(10 * T)
		if n := len(b.opsSince(begin)); n > 0 {
			t.Errorf("%d requests after the feed came back", n)
		}
		var up, down int
		for _, f := range b.feeds {
			if f.Err == nil {
				up++
			} else {
				down++
			}
		}
		if up != 2 || down < 3 {
			t.Errorf("feed events: %d up, %d down", up, down)
		}
	})
}

// Rule 17: a transient error never ends a campaign; a permanent one only while
// nothing has worked yet.
func TestRule17OnlyPermanentErrorsEndACampaign(t *testing.T) {
	permanent := fmt.Errorf("no such bucket: %w", le.ErrPermanent)
	for _, feed := range []bool{true, false} {
		adjust := func(*config) {}
		if !feed {
			adjust = polled
		}
		t.Run(fmt.Sprintf("feed %v", feed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				inject := func(f memory.Faults) func(*config) {
					return func(c *config) { c.Decider.(*memory.Decider).Inject(f) }
				}
				transient := join(t, d, "transient", inject(memory.LoseRequests()), adjust)
				refused := join(t, d, "refused", inject(memory.Fail(permanent)), adjust)
				sleep(time.Hour)
				if transient.Status() == le.Stopped {
					t.Fatalf("a transient error ended the campaign: %v", transient.Wait())
				}
				if refused.Status() != le.Stopped || !errors.Is(refused.Wait(), le.ErrPermanent) {
					t.Fatalf("status %v after a permanent error, want an end with it", refused.Status())
				}
				transient.store.Inject(nil)
				sleep(time.Minute)
				transient.leads(t)
				transient.store.Inject(memory.Fail(permanent))
				sleep(time.Hour)
				transient.follows(t)
				transient.store.Inject(nil)
				sleep(2 * time.Minute)
				transient.leads(t)
			})
		})
	}
}

// Rule 11: however long the store was out of reach, what happened meanwhile is noticed within two
// and a half PollIntervals of its return, also by an observer.
func TestRule11NewsAfterAnOutage(t *testing.T) {
	for _, poll := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 0} {
		t.Run(poll.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				limit := 5 * poll / 2
				if poll == 0 {
					limit = 5 * T / 4
				}
				d := memory.NewDecider()
				d.Replace(rival(3))
				b := join(t, d, "b", func(c *config) { c.PollInterval = poll }, polled)
				o := d.Handle()
				var observed atomic.Uint64
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- le.WatchConfig{Decider: o.Polled(), MaxClockSkew: S, PollInterval: poll}.Watch(ctx, func(_ context.Context, e le.RaceEntry) {
						observed.Store(uint64(e.ElectionNumber))
					})
				}()
				for i := range 20 {
					sleep(time.Second)
					b.store.Inject(memory.Fail(errors.New("cut off")))
					o.Inject(memory.Fail(errors.New("cut off")))
					sleep(time.Minute + time.Duration(i)*77*time.Millisecond)
					next := rival(le.ElectionNumber(4 + i))
					next.TermExpiry = next.TermExpiry.Add(time.Hour)
					d.Replace(next)
					b.store.Inject(nil)
					o.Inject(nil)
					sleep(limit)
					if seen := b.Leader().ElectionNumber; seen != next.ElectionNumber {
						t.Errorf("after outage %d the candidate has not noticed within %v", i, limit)
					}
					if seen := observed.Load(); seen != uint64(next.ElectionNumber) {
						t.Errorf("after outage %d the observer has not noticed within %v", i, limit)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

// Rule 12: also where the record's term ends in hours, since a clock that is ahead
// has written it, a standby and an observer do not trust a feed that has been silent
// for a term.
func TestRule12SilentFeedOfALongTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		far := rival(3)
		far.TermExpiry = time.Now().Add(5 * time.Hour)
		d.Replace(far)
		a := join(t, d, "a", func(c *config) {
			n := 0
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind == memory.Feed {
					if n++; n == 2 {
						return memory.Fault{Delay: 5 * time.Hour} // heeds its ctx
					}
				}
				return memory.Fault{}
			})
		})
		sleep(time.Second)
		d.Replace(rival(4))
		sleep(T + S/2)
		if got := a.Leader().ElectionNumber; got != 4 {
			t.Fatalf("a knows of leadership %d, want 4", got)
		}
	})
}

// Rule 11: whatever fails, no more than four writes and four reads begin within a
// second: a write that failed is followed by the read that asks what became of it.
func TestRule11FourOfAKindInASecond(t *testing.T) {
	for name, fault := range map[string]func(d *memory.Decider) memory.Faults{
		"412 or 409":        func(*memory.Decider) memory.Faults { return memory.Fail(le.ErrLostRace).On(memory.Write) },
		"writes lost":       func(*memory.Decider) memory.Faults { return memory.LoseRequests().On(memory.Write) },
		"answers lost":      func(*memory.Decider) memory.Faults { return memory.LoseAnswers().On(memory.Write) },
		"reads lost":        func(*memory.Decider) memory.Faults { return memory.LoseRequests().On(memory.Read) },
		"every other one":   everyOther,
		"refused, and more": refusedAndLost,
	} {
		for _, stale := range []bool{false, true} {
			for _, term := range []time.Duration{T, 4 * time.Second, time.Second} {
				t.Run(fmt.Sprintf("%s, stale reads %v, T=%v", name, stale, term), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						a := join(t, d, "a", polled, func(c *config) {
							c.TermLength, c.MaxClockSkew, c.ClockPolicy = term, 0, le.SharedClock
							if stale {
								c.Decider = &replica{RaceDecider: c.Decider, stale: func() *le.RaceEntry {
									e := rival(1)
									e.TermExpiry, e.Token = time.Now().Add(-time.Hour), d.Entry().Token
									return e
								}}
							}
						})
						sleep(term)
						a.store.Inject(fault(d))
						sleep(2 * time.Minute)
						for _, kinds := range [][]le.OpKind{{le.OpRead}, {le.OpAcquire, le.OpExtend, le.OpRelease}} {
							ops := a.opsSince(time.Time{}, kinds...)
							for i := 4; i < len(ops); i++ {
								if span := ops[i].Start.Sub(ops[i-4].Start); span < time.Second-time.Millisecond {
									t.Fatalf("five of %v within %v, at %v", kinds, span, ops[i].Start)
								}
							}
						}
					})
				})
			}
		}
	}
}

// busy is a store whose record is extended by another all the time: every read is news,
// of a term that is over, and every write is too late.
type busy struct {
	le.RaceDecider
	reads uint64
	began []time.Time // of writes
}

func (b *busy) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := b.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		b.reads++
		r := rival(1)
		r.Extension, r.TermExpiry, r.Token = b.reads, time.Now().Add(-time.Hour), e.Token
		e = r
	}
	return e, err
}

func (b *busy) WriteEntry(context.Context, *le.RaceEntry) (le.LeaderToken, error) {
	b.began = append(b.began, time.Now())
	return nil, le.ErrLostRace
}

// Rule 11: four failing writes a second are the most, also when each failure is explained
// by what another has written since.
func TestRule11FourFailingWritesInASecond(t *testing.T) {
	for _, poll := range []time.Duration{0, 50 * time.Millisecond} { // reads that are as frequent are not counted
		bubble(t, func(t *testing.T) {
			var store *busy
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				c.Decider.(*memory.Decider).Inject(memory.Slow(10 * time.Millisecond))
				store = &busy{RaceDecider: c.Decider}
				c.Decider, c.TermLength, c.MaxClockSkew, c.ClockPolicy, c.PollInterval = store, time.Second, 0, le.SharedClock, poll
			})
			sleep(time.Minute)
			a.quit()
			if len(store.began) < 60 {
				t.Errorf("only %d writes in a minute", len(store.began))
			}
			for i := 4; i < len(store.began); i++ {
				if span := store.began[i].Sub(store.began[i-4]); span < time.Second {
					t.Fatalf("polling every %v: five failing writes within %v", poll, span)
				}
			}
		})
	}
}

// everyOther call fails.
func everyOther(*memory.Decider) memory.Faults {
	n := 0
	return func(op memory.Op) memory.Fault {
		if n++; n%2 == 0 {
			return memory.Fault{Err: memory.ErrLost}
		}
		return memory.Fault{}
	}
}

// refusedAndLost writes are refused or lost in turns.
func refusedAndLost(*memory.Decider) memory.Faults {
	n := 0
	return memory.Faults(func(memory.Op) memory.Fault {
		if n++; n%2 == 0 {
			return memory.Fault{Err: memory.ErrLost}
		}
		return memory.Fault{Err: le.ErrLostRace}
	}).On(memory.Write)
}

// A candidate whose reads take longer than its PollInterval contests all the same.
func TestPollsFasterThanItReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Replace(rival(3))
		a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
		a.store.Inject(memory.Slow(3 * time.Second).On(memory.Read))
		sleep(T + S + 10*time.Second)
		a.leads(t)
	})
}

// Rule 12: if one read in a hundred is lost, what a standby or an observer that polls learns is no later than one and
// a quarter polls in 995 cases of 1000: the first retry comes after a quarter of a poll, and one lost read changes
// nothing else.
func TestRule12LostReadsDelayNews(t *testing.T) {
	const poll, changes = T / 2, 5000
	for _, who := range []string{"standby", "observer"} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rnd, lost := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(3, 4)) // of the test, and of the store's calls
				d := memory.NewDecider()
				store := d.Handle()
				store.Inject(func(op memory.Op) (f memory.Fault) {
					if op.Kind == memory.Read && lost.IntN(100) == 0 {
						f.Err = memory.ErrLost
					}
					return f
				})
				e := rival(3)
				d.Replace(e)
				var written time.Time
				var late []time.Duration
				trace := &le.Trace{News: func(of le.RaceEntry) {
					if of.Extension > 0 {
						late = append(late, time.Since(written))
					}
				}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				if who == "standby" {
					c, err := le.Config{Decider: store.Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S, PollInterval: poll, Trace: trace, Logger: slog.New(slog.DiscardHandler)}.Start(ctx)
					if err != nil {
						t.Fatal(err)
					}
					go func() { done <- c.Wait() }()
				} else {
					w := le.WatchConfig{Decider: store.Polled(), MaxClockSkew: S, PollInterval: poll, Trace: trace, Logger: slog.New(slog.DiscardHandler)}
					go func() { done <- w.Watch(ctx, func(context.Context, le.RaceEntry) {}) }()
				}
				sleep(time.Second)
				for range changes {
					written = time.Now()
					e.Extension, e.TermExpiry, e.TermLength = e.Extension+1, written.Add(10*T), 10*T // it only polls
					d.Replace(e)
					sleep(2*poll + time.Duration(rnd.Int64N(int64(poll))))
				}
				cancel()
				<-done
				slices.Sort(late)
				if len(late) < changes*99/100 {
					t.Fatalf("%d of %d changes were learned", len(late), changes)
				}
				for _, share := range []int{990, 995} {
					if got := late[share*len(late)/1000]; got > poll*5/4 {
						t.Errorf("%d in 1000 changes are learned within %v, want %v", share, got, poll*5/4)
					}
				}
			})
		})
	}
}
