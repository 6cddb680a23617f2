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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 11: when calls are made.
func TestRule11Pace(t *testing.T) {
	scenes{
		"extensions, at half of the view from the last that was confirmed": func(t *testing.T) {
			d := memory.NewDecider()
			start := time.Now()
			a := join(t, d, "a", faulty(memory.Slow(time.Second).On(memory.Write)))
			sleep(30 * time.Second)
			for i, op := range a.opsSince(start, le.OpExtend) {
				if want := start.Add(time.Duration(i+1) * 7 * time.Second); !op.Start.Equal(want) {
					t.Errorf("extension %d began at %v, want %v", i, op.Start.Sub(start), want.Sub(start))
				}
			}
		},
		"no sooner after a lost race, which is no trouble": func(t *testing.T) {
			_, a := leader(t)
			a.store.Inject(memory.Always(memory.Fault{Err: le.ErrLostRace, Lands: true}).On(memory.Write).Times(1))
			sleep(7 * time.Second)
			extended := time.Now()
			sleep(12 * time.Second)
			ops := a.opsSince(extended, le.OpExtend)
			if len(ops) == 0 || len(ops) > 2 {
				t.Fatalf("%d extensions in 12 s", len(ops))
			}
			near(t, "the next extension", ops[0].Start.Sub(extended), 6*time.Second, time.Second/2)
		},
		"a call that hangs is given up after T/4, and few hang": func(t *testing.T) {
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
		},
		"reads that work do not reset the back-off of writes": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", faulty(memory.LoseRequests().On(memory.Write)))
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
		},
		"in a long term, a call that hangs costs half a minute": func(t *testing.T) {
			const term = 24 * time.Hour
			hang := memory.Always(memory.Fault{Delay: 1000 * time.Hour})
			long := func(c *config) { c.TermLength = term }
			d := memory.NewDecider()
			a := join(t, d, "a", long, faulty(hang.On(memory.Read).Times(1)), polled)
			sleep(time.Minute)
			a.leads(t)
			b := join(t, d, "b", long)
			a.store.Inject(hang.On(memory.Write).Times(1))
			sleep((term - S) / 2) // the extension hangs
			begun := time.Now()
			if err := a.Resign(t.Context()); err != nil || time.Since(begun) > time.Minute {
				t.Errorf("resigned after %v: %v", time.Since(begun), err)
			}
			sleep(time.Second)
			b.leads(t)
		},
		"a write that landed is no failure, even if a feed has told first": func(t *testing.T) {
			_, a := leader(t, func(c *config) { c.TermLength = time.Minute })
			a.store.Inject(memory.Always(memory.Fault{Err: memory.ErrLost, Lands: true, AnswerDelay: 100 * time.Millisecond}).On(memory.Write))
			sleep(20 * time.Minute)
			if a.leads(t); a.count() != 1 {
				t.Errorf("%d leaderships", a.count())
			}
			ops := a.opsSince(time.Now().Add(-10 * time.Minute))
			for i, op := range ops[:len(ops)-1] {
				if next := ops[i+1]; op.Kind == le.OpExtend && (next.Kind != le.OpRead || next.Start.Sub(op.Start) > 3*time.Second) {
					t.Errorf("%v after an extension that landed: %v", next.Start.Sub(op.Start), next.Kind)
				}
			}
		},
		"reads that take longer than PollInterval": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(3))
			a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
			a.store.Inject(memory.Slow(3 * time.Second).On(memory.Read))
			sleep(T + S + 10*time.Second)
			a.leads(t)
		},
		"a standby that has failed twice recovers": func(t *testing.T) {
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
		},
		"who was ousted is a standby, though its callback runs": func(t *testing.T) {
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
		},
		"an acquisition that landed without an answer is found soon": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(first))
			writes := 0
			var landed time.Time
			a := join(t, d, "a", faulty(memory.Faults(func(memory.Op) memory.Fault {
				switch writes++; writes {
				case 1:
					return memory.Fault{Err: errSlowDown}
				case 2:
					landed = time.Now()
					return memory.Fault{Err: memory.ErrLost, Lands: true}
				}
				return memory.Fault{}
			}).On(memory.Write)), polled)
			sleep(4 * T)
			a.leads(t)
			if took := a.leadership(t, 0).from.Sub(landed); took > 3*T/32 {
				t.Errorf("it leads %v after its acquisition has landed", took)
			}
		},
		"releases that are refused at once": func(t *testing.T) {
			_, a := leader(t, polled)
			a.store.Inject(memory.Fail(&le.LostRaceError{}).On(memory.Write))
			left := time.Now()
			a.quit()
			tries, took := len(a.opsSince(left)), time.Since(left).Seconds()
			if tries < 2 || float64(tries) > 8*(took+1) {
				t.Errorf("%d calls in %v s", tries, took)
			}
		},
		"a feed that tells of two by turns": func(t *testing.T) {
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
		},
	}.run(t)
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
				scene(t, fmt.Sprintf("%s, T=%v, poll=%v", name, term, poll), func(t *testing.T) {
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
					fourASecond(t, "in an outage", a.opsSince(begin), time.Second)
				})
			}
		}
	}
}

// silent has a feed deliver one record, and nothing until its ctx ends.
func silent() memory.Faults {
	n := 0
	return func(op memory.Op) (f memory.Fault) {
		if op.Kind == memory.Feed {
			if n++; n == 2 {
				f.Delay = 5 * time.Hour
			}
		}
		return f
	}
}

// Rule 12: what a standby asks of the store.
func TestRule12Standby(t *testing.T) {
	scenes{
		"nothing on a feed; reads only, if it polls": func(t *testing.T) {
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
		},
		"what a silent feed withholds, at TermExpiry + S": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a")
			synctest.Wait()
			b := join(t, d, "b", faulty(silent()))
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
		},
		"polls, while its feed fails": func(t *testing.T) {
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
		},
		"after a silence of a term, though the record's term ends in hours": func(t *testing.T) {
			d := memory.NewDecider()
			far := rival(3)
			far.TermExpiry = time.Now().Add(5 * time.Hour)
			d.Replace(far)
			a := join(t, d, "a", faulty(silent()))
			sleep(time.Second)
			d.Replace(rival(4))
			sleep(T + S/2)
			if got := a.Leader().ElectionNumber; got != 4 {
				t.Fatalf("a knows of leadership %d, want 4", got)
			}
		},
	}.run(t)
}

// Rule 17: a transient error never ends a campaign; a permanent one only while
// nothing has worked yet.
func TestRule17OnlyPermanentErrorsEndACampaign(t *testing.T) {
	permanent := fmt.Errorf("no such bucket: %w", le.ErrPermanent)
	for style, adjust := range styles {
		scene(t, style, func(t *testing.T) {
			d := memory.NewDecider()
			transient := join(t, d, "transient", faulty(memory.LoseRequests()), adjust)
			refused := join(t, d, "refused", faulty(memory.Fail(permanent)), adjust)
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
	}
}

// Rule 11: however long the store was out of reach, what happened meanwhile is noticed within two
// and a half PollIntervals of its return, also by an observer.
func TestRule11NewsAfterAnOutage(t *testing.T) {
	for _, poll := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 0} {
		scene(t, poll.String(), func(t *testing.T) {
			limit := 5 * poll / 2
			if poll == 0 {
				limit = 5 * T / 4
			}
			d := memory.NewDecider()
			d.Replace(rival(3))
			b := join(t, d, "b", func(c *config) { c.PollInterval = poll }, polled)
			o := d.Handle()
			var observed atomic.Uint64
			watch(t, le.WatchConfig{Decider: o.Polled(), MaxClockSkew: S, PollInterval: poll}, func(e le.RaceEntry) {
				observed.Store(uint64(e.ElectionNumber))
			})
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
		})
	}
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
				scene(t, fmt.Sprintf("%s, stale reads %v, T=%v", name, stale, term), func(t *testing.T) {
					d := memory.NewDecider()
					a := join(t, d, "a", polled, func(c *config) {
						c.TermLength, c.MaxClockSkew, c.ClockPolicy = term, 0, le.SharedClock
						if stale {
							n := 0
							c.Decider = &lying{c.Decider, func(e *le.RaceEntry, err error) (*le.RaceEntry, error) {
								if n++; n%2 == 0 {
									e, err = rival(1), nil
									e.TermExpiry, e.Token = time.Now().Add(-time.Hour), d.Entry().Token
								}
								return e, err
							}}
						}
					})
					sleep(term)
					a.store.Inject(fault(d))
					sleep(2 * time.Minute)
					for _, kinds := range [][]le.OpKind{{le.OpRead}, {le.OpAcquire, le.OpExtend, le.OpRelease}} {
						fourASecond(t, fmt.Sprint(kinds), a.opsSince(time.Time{}, kinds...), time.Second-time.Millisecond)
					}
				})
			}
		}
	}
}

// Rule 11: four failing writes a second are the most, also when each failure is explained
// by what another has written since.
func TestRule11FourFailingWritesInASecond(t *testing.T) {
	for _, poll := range []time.Duration{0, 50 * time.Millisecond} { // reads that are as frequent are not counted
		bubble(t, func(t *testing.T) {
			refused := memory.Fail(le.ErrLostRace).On(memory.Write)
			reads := uint64(0) // each is news, of a term that is over
			a := join(t, memory.NewDecider(), "a", faulty(func(op memory.Op) memory.Fault {
				f := refused(op)
				f.Delay = 10 * time.Millisecond
				return f
			}), func(c *config) {
				c.Decider = &lying{c.Decider, func(e *le.RaceEntry, err error) (*le.RaceEntry, error) {
					if err == nil {
						reads++
						r := rival(1)
						r.Extension, r.TermExpiry, r.Token = reads, time.Now().Add(-time.Hour), e.Token
						e = r
					}
					return e, err
				}}
				c.TermLength, c.MaxClockSkew, c.ClockPolicy, c.PollInterval = time.Second, 0, le.SharedClock, poll
			})
			sleep(time.Minute)
			a.quit()
			writes := a.opsSince(time.Time{}, le.OpAcquire)
			if len(writes) < 60 {
				t.Errorf("only %d writes in a minute", len(writes))
			}
			fourASecond(t, fmt.Sprintf("polling every %v", poll), writes, time.Second)
		})
	}
}

// fourASecond fails if five operations have begun within less than a second.
func fourASecond(t *testing.T, what string, ops []le.StoreOp, second time.Duration) {
	t.Helper()
	for i := 4; i < len(ops); i++ {
		if span := ops[i].Start.Sub(ops[i-4].Start); span < second {
			t.Fatalf("%s: five operations within %v, at %v", what, span, ops[i].Start)
		}
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

// Rule 12: if one read in a hundred is lost, what a standby or an observer that polls learns is no later than one and
// a quarter polls in 995 cases of 1000: the first retry comes after a quarter of a poll, and one lost read changes
// nothing else.
func TestRule12LostReadsDelayNews(t *testing.T) {
	const poll, changes = T / 2, 5000
	for _, who := range []string{"standby", "observer"} {
		scene(t, who, func(t *testing.T) {
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
			var stop func()
			if who == "standby" {
				stop = join(t, d, "a", func(c *config) { c.Decider, c.PollInterval, c.Trace = store.Polled(), poll, trace }).quit
			} else {
				stop = watch(t, le.WatchConfig{Decider: store.Polled(), MaxClockSkew: S, PollInterval: poll, Trace: trace, Logger: slog.New(slog.DiscardHandler)})
			}
			sleep(time.Second)
			for range changes {
				written = time.Now()
				e.Extension, e.TermExpiry, e.TermLength = e.Extension+1, written.Add(10*T), 10*T // it only polls
				d.Replace(e)
				sleep(2*poll + time.Duration(rnd.Int64N(int64(poll))))
			}
			stop()
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
	}
}

var errSlowDown = errors.New("503: slow down")

// bucket is what a store takes: so many requests a second, and as many at once.
type bucket struct {
	mu           sync.Mutex
	rate, tokens float64
	at           time.Time
	asked        int
}

// take is what becomes of a request, 5 ms later.
func (b *bucket) take(memory.Op) memory.Fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(b.rate, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	b.at = now
	b.asked++
	if b.tokens < 1 {
		return memory.Fault{Delay: 5 * time.Millisecond, Err: errSlowDown}
	}
	b.tokens--
	return memory.Fault{Delay: 5 * time.Millisecond}
}

func (b *bucket) set(rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rate, b.tokens, b.at = rate, 0, time.Now()
}

// count returns how many requests there were since the last call.
func (b *bucket) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.asked
	b.asked = 0
	return n
}

// afterOutage is the bound for a leader to be back after an outage, by the docs.
const afterOutage = max(T+3*S, 5*T/4)

// Rule 11: standbys that a store refuses ask no more often than others, so they cost the leader
// nothing, and an outage costs the store no more than calm.
func TestRule11ManyStandbys(t *testing.T) {
	const n = 100
	for _, rate := range []float64{100, 20, 15, 10} { // 13 reads a second are their polls
		scene(t, fmt.Sprint(rate), func(t *testing.T) {
			b, d := &bucket{}, memory.NewDecider()
			b.set(rate)
			var w crowd
			for i := range n {
				store := d.Handle()
				store.Inject(b.take)
				w.join(t, fmt.Sprint("c", i), store.Polled())
			}
			defer b.set(1e6)
			t.Logf("cold start: a leader after %v", w.await(t, 2*time.Minute))
			sleep(time.Minute)
			before := d.Entry().ElectionNumber
			b.count()
			sleep(10 * time.Minute)
			calm := float64(b.count()) / 600
			t.Logf("calm: %.1f requests a second", calm)
			if w.leader() < 0 || d.Entry().ElectionNumber != before {
				t.Errorf("in ten minutes the leader has lost its place %d times", d.Entry().ElectionNumber-before)
			}
			b.set(0)
			sleep(5 * time.Minute)
			outage := float64(b.count()) / 300
			t.Logf("outage: %.1f requests a second", outage)
			if polls := n / (T / 2).Seconds(); outage > min(calm, polls) {
				t.Errorf("in an outage %.1f requests a second, in calm %.1f, of which %.1f are polls", outage, calm, polls)
			}
			b.set(rate)
			t.Logf("a leader is back after %v", w.await(t, afterOutage+time.Second))
		})
	}
}

// Rule 11: a standby that fails asks once more soon, and then less often than one that works. So
// does an observer.
func TestRule11AFailingStandby(t *testing.T) {
	for _, poll := range []time.Duration{0, 10 * time.Millisecond, time.Second, 2 * T} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			join(t, d, "a")
			sleep(time.Second)
			b := join(t, d, "b", polled, func(c *config) { c.PollInterval = poll })
			var reads []time.Time
			o := d.Handle()
			stop := watch(t, le.WatchConfig{Decider: o.Polled(), MaxClockSkew: S, PollInterval: poll, Logger: slog.New(slog.DiscardHandler), Trace: &le.Trace{StoreOp: func(op le.StoreOp) {
				reads = append(reads, op.Start)
			}}})
			sleep(T)
			b.store.Inject(memory.LoseRequests())
			o.Inject(memory.LoseRequests())
			cut := time.Now()
			sleep(time.Hour)
			if poll == 0 {
				poll = T / 2
			}
			pace := max(min(poll, T), 250*time.Millisecond)
			var ours []time.Time
			for _, op := range b.opsSince(cut) {
				ours = append(ours, op.Start)
			}
			stop()
			n := 0
			for n < len(reads) && reads[n].Before(cut) {
				n++
			}
			for who, all := range map[string][]time.Time{"the standby": ours, "the observer": reads[n:]} {
				if most := int(time.Hour/pace) * 6 / 10; len(all) > most {
					t.Errorf("poll %v: %s has asked %d times in an hour, want at most %d", poll, who, len(all), most)
				}
				for i := range all[1:] {
					if gap := all[i+1].Sub(all[i]); i > 3 && gap < 2*pace || gap > 5*pace/2+S {
						t.Errorf("poll %v: %s has asked for the %dth time after %v", poll, who, i+2, gap)
					}
				}
			}
		})
	}
}

// Rule 11: after an outage, however long, the last leader is the first to be back. If it is gone,
// another leads within the bound for standbys.
func TestRule11TheLastLeaderIsBackFirst(t *testing.T) {
	for name, fault := range map[string]func() memory.Faults{
		"fails":  func() memory.Faults { return memory.Fail(errSlowDown) },
		"writes": func() memory.Faults { return memory.Fail(errSlowDown).On(memory.Write) },
	} {
		for _, feed := range []bool{false, true} {
			for _, gone := range []bool{false, true} {
				scene(t, fmt.Sprintf("%s, feed %v, gone %v", name, feed, gone), func(t *testing.T) {
					d := memory.NewDecider()
					var all []*member
					for i := range 4 {
						all = append(all, join(t, d, fmt.Sprint(i), fed(feed)))
						sleep(time.Second)
					}
					for i := range 4 {
						all[i].store.Inject(fault())
					}
					sleep(5*time.Minute + T/3)
					for i := range 4 {
						all[i].store.Inject(nil)
					}
					limit := T / 6
					if gone {
						all[0].quit()
						all = all[1:]
						limit = afterOutage
					}
					leader := -1
					back := time.Now()
					for leader < 0 && time.Since(back) <= limit {
						sleep(50 * time.Millisecond)
						leader = slices.IndexFunc(all, func(m *member) bool { return m.View().ValueInFuture() })
					}
					t.Logf("%d leads after %v", leader, time.Since(back))
					if leader < 0 || leader > 0 && !gone {
						t.Errorf("%d leads %v after the outage", leader, time.Since(back))
					}
				})
			}
		}
	}
}

// Rule 11: if requests hang, somebody leads within the quarter of a term after which they are given up, wherever in that
// the store comes back.
func TestRule11BackAfterRequestsHang(t *testing.T) {
	for _, feed := range []bool{false, true} {
		for into := time.Duration(0); into < T/4; into += T / 60 {
			bubble(t, func(t *testing.T) {
				d := memory.NewDecider()
				var all []*member
				for i := range 3 {
					all = append(all, join(t, d, fmt.Sprint(i), fed(feed)))
					sleep(time.Second)
				}
				for _, m := range all {
					m.store.Inject(memory.Slow(time.Hour))
				}
				sleep(5*time.Minute + into)
				back := time.Now()
				for _, m := range all {
					m.store.Inject(nil)
				}
				for !slices.ContainsFunc(all, func(m *member) bool { return m.View().ValueInFuture() }) {
					if time.Since(back) > T/4 {
						t.Fatalf("feed %v, %v into it: nobody leads %v after the outage", feed, into, time.Since(back))
					}
					sleep(50 * time.Millisecond)
				}
			})
		}
	}
}

// asksForPause makes each call fail, with a Retry-After.
func asksForPause(d time.Duration) memory.Faults {
	return memory.Fail(fmt.Errorf("reading: %w", &le.RetryAfterError{After: d, Err: errSlowDown}))
}

// bare is a store whose refusals do not bring the current record along, as S3's do not.
type bare struct{ le.RaceDecider }

func (b bare) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	token, err := b.RaceDecider.WriteEntry(ctx, e)
	if errors.Is(err, le.ErrLostRace) {
		err = le.ErrLostRace
	}
	return token, err
}

// slow is a handle on a store that takes 5 ms.
func slow(d *memory.Decider) *memory.Decider {
	store := d.Handle()
	store.Inject(memory.Slow(5 * time.Millisecond))
	return store
}

// bareOf is such a store, with its feed or without.
func bareOf(store *memory.Decider, pushed bool) le.RaceDecider {
	if !pushed {
		return bare{store.Polled()}
	}
	return struct {
		bare
		le.ChangeFeed
	}{bare{store}, store}
}

// crowd is many candidates on one store, and all that they ask.
type crowd struct {
	members []*le.Campaign

	mu  sync.Mutex
	ops []le.StoreOp
}

// join starts a candidate.
func (w *crowd) join(t *testing.T, id string, decider le.RaceDecider) {
	c, _ := start(t, le.Config{
		Decider: decider, LeaderID: id, TermLength: T, MaxClockSkew: S,
		Logger:    slog.New(slog.DiscardHandler),
		OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() },
		Trace:     w.trace(),
	})
	w.members = append(w.members, c)
}

// leader is the one whose view is true, or -1.
func (w *crowd) leader() int {
	return slices.IndexFunc(w.members, func(c *le.Campaign) bool { return c.View().ValueInFuture() })
}

// await returns how long it takes until there is a leader.
func (w *crowd) await(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for w.leader() < 0 {
		if sleep(50 * time.Millisecond); time.Since(began) > limit {
			t.Fatalf("no leader within %v", limit)
		}
	}
	return time.Since(began)
}

func (w *crowd) trace() *le.Trace {
	return &le.Trace{StoreOp: func(op le.StoreOp) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ops = append(w.ops, op)
	}}
}

// since returns how many writes began since a time, and the most operations that began within 100 ms.
func (w *crowd) since(begin time.Time) (writes, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var at []time.Time
	for _, op := range w.ops {
		if op.Start.Before(begin) {
			continue
		}
		at = append(at, op.Start)
		if op.Kind != le.OpRead {
			writes++
		}
	}
	slices.SortFunc(at, time.Time.Compare)
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= 100*time.Millisecond {
			first++
		}
		most = max(most, i-first+1)
	}
	return writes, most
}

// Rule 12: when the leader is gone, its standbys do not ask all at once, however many they are, and go on to ask as
// spread as that. Few write: those that learn of a new leader before it is their turn do not.
func TestRule12ManyStandbysSpread(t *testing.T) {
	for _, pushed := range []bool{false, true} {
		scene(t, fmt.Sprintf("pushed %v", pushed), func(t *testing.T) {
			d := memory.NewDecider()
			var w crowd
			var stores []*memory.Decider
			for i := range 501 {
				store := slow(d)
				stores = append(stores, store)
				w.join(t, fmt.Sprint("c", i), bareOf(store, pushed))
				time.Sleep(T / 500)
			}
			for range 5 {
				sleep(T)
				i := w.leader()
				if i < 0 {
					t.Fatal("no leader")
				}
				gone := time.Now()
				stores[i].Inject(memory.LoseRequests())
				sleep(2 * T)
				writes, most := w.since(gone)
				t.Logf("%d writes, %d operations in 100 ms", writes, most)
				if writes > 30 || most > 100 {
					t.Errorf("%d writes, and %d operations within 100 ms, want at most 30 and 100", writes, most)
				}
				stores[i].Inject(memory.Slow(5 * time.Millisecond))
			}
		})
	}
}

// Rule 12: so do observers, when the leader is gone.
func TestRule12ManyObserversSpread(t *testing.T) {
	for _, pushed := range []bool{false, true} {
		scene(t, fmt.Sprintf("pushed %v", pushed), func(t *testing.T) {
			d := memory.NewDecider()
			var w crowd
			leader := slow(d)
			w.join(t, "leader", bareOf(leader, pushed))
			var lapsed atomic.Int64
			for range 500 {
				time.Sleep(T / 500)
				watch(t, le.WatchConfig{Decider: bareOf(slow(d), pushed), MaxClockSkew: S, Trace: w.trace(), Logger: slog.New(slog.DiscardHandler),
					Lapsed: func(context.Context, le.RaceEntry) { lapsed.Add(1) }})
			}
			sleep(T)
			gone := time.Now()
			leader.Inject(memory.LoseRequests())
			sleep(T + S + spread + T/2)
			if _, most := w.since(gone); most > 100 || lapsed.Load() != 500 {
				t.Errorf("%d operations within 100 ms, and %d lapses, want at most 100, and 500", most, lapsed.Load())
			}
		})
	}
}

// Rule 12: those that were started together, as by a deployment, do not poll together for good.
func TestRule12StartedTogether(t *testing.T) {
	for _, observe := range []bool{false, true} {
		scene(t, fmt.Sprintf("observers %v", observe), func(t *testing.T) {
			d := memory.NewDecider()
			var w crowd
			w.join(t, "leader", bareOf(slow(d), false))
			for i := range 200 {
				time.Sleep(time.Microsecond) // an observer has no name but the time
				if store := bareOf(slow(d), false); observe {
					watch(t, le.WatchConfig{Decider: store, MaxClockSkew: S, Trace: w.trace(), Logger: slog.New(slog.DiscardHandler)})
				} else {
					w.join(t, fmt.Sprint("c", i), store)
				}
			}
			sleep(2 * T)
			began := time.Now()
			sleep(T)
			if _, most := w.since(began); most > 40 {
				t.Errorf("%d operations within 100 ms, want at most 40", most)
			}
		})
	}
}

// counting is a clock that tells of its jumps, has none, and counts who wakes by it.
type counting struct {
	clocks.Clock
	woken atomic.Int64
}

func (c *counting) SleepFor(ctx context.Context, d time.Duration) bool {
	slept := c.Clock.SleepFor(ctx, d)
	if slept {
		c.woken.Add(1)
	}
	return slept
}

func (c *counting) NotifyJump(func()) (func(), error) { return func() {}, nil }

// Where nothing is amiss, a candidate wakes by a clock that is not the system's to extend, twice a
// term, and, as a leader, once a second to look at both its clocks; a follower on a feed when a term
// could have run out, and one that polls to read. Whatever else wakes it comes from the store.
func TestWakeUps(t *testing.T) {
	const terms = 40
	for name, most := range map[string]struct{ leader, standby int64 }{
		"feed": {2*terms + terms*int64(T)/int64(time.Second), 0},
		"poll": {2*terms + terms*int64(T)/int64(time.Second), 2 * terms},
	} {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			var clock [2]*counting
			for i := range clock {
				clock[i] = &counting{Clock: clocks.System()}
				join(t, d, string(rune('a'+i)), func(c *config) {
					c.Clock = clock[i]
					if name == "poll" {
						polled(c)
					}
				})
				sleep(T)
			}
			leader, standby := clock[0].woken.Load(), clock[1].woken.Load()
			sleep(terms * T)
			leader, standby = clock[0].woken.Load()-leader, clock[1].woken.Load()-standby
			t.Logf("in %d terms the leader woke %d times, the standby %d times", terms, leader, standby)
			if leader > most.leader || standby > most.standby {
				t.Errorf("want at most %d and %d", most.leader, most.standby)
			}
			if leader < 2*terms {
				t.Error("the count has missed the extensions")
			}
		})
	}
}

// leadsOn returns for how long a leader leads on that is cut off from its store just before
// an extension is due. Before is done a while before that.
func leadsOn(t *testing.T, every, due time.Duration, before func(*member)) (left time.Duration) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.ExtendEvery = every })
		sleep(2 * T)
		if before != nil {
			before(a)
		}
		a.awaitExtension()
		sleep(due - 50*time.Millisecond)
		a.store.Inject(memory.LoseRequests())
		cut := time.Now()
		<-a.leadership(t, 0).ctx.Done()
		left = time.Since(cut)
	})
	return left
}

func (m *member) awaitExtension() {
	extended := func() (n int) { m.note(func() { n = len(m.ext) }); return n }
	for n := extended(); extended() == n; {
		sleep(10 * time.Millisecond)
	}
}

// Rule 11: a leader that is cut off leads on for T - S - ExtendEvery at the least.
func TestRule11CutOff(t *testing.T) {
	near(t, "the default", leadsOn(t, 0, (T-S)/2, nil), (T-S)/2, 100*time.Millisecond)
	near(t, "extending every 4 s", leadsOn(t, 4*time.Second, 4*time.Second, nil), T-S-4*time.Second, 100*time.Millisecond)
}

// A call that failed, or was slow, a while before the outage brings forward the next extension.
func TestRule11CutOffWithNotice(t *testing.T) {
	for name, faults := range map[string]memory.Faults{
		"failed": memory.LoseRequests().On(memory.Write).Times(1),
		"slow":   memory.Slow(2500 * time.Millisecond).On(memory.Write).Times(1),
	} {
		left := leadsOn(t, 0, (T-S)/2, func(a *member) {
			a.store.Inject(faults)
			a.awaitExtension()
		})
		near(t, name, left, T-S-(T-S)/4, 100*time.Millisecond)
	}
}

// In fair weather ExtendEvery costs what it says, and a store that has recovered costs
// no more than before.
func TestRule11WritesInATerm(t *testing.T) {
	for every, most := range map[time.Duration]float64{0: 2.2, 4 * time.Second: 3.8} {
		bubble(t, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) { c.ExtendEvery = every })
			sleep(T)
			a.store.Inject(memory.LoseRequests().Times(1))
			sleep(5 * T)
			a.store.Inject(nil)
			began := time.Now()
			sleep(100 * T)
			if n := float64(len(a.opsSince(began))) / 100; n > most {
				t.Errorf("extending every %v: %.2f operations a term", every, n)
			}
		})
	}
}
