//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// Rule 3: a challenger waits for TermExpiry + S by its own clock, its very first
// attempt included.
func TestRule03ChallengerWaitsOutTermAndSkew(t *testing.T) {
	for name, adjust := range styles {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			held := rival(7)
			d.Replace(held)
			sleep(T - time.Second) // the record is old news when b arrives
			b := join(t, d, "b", adjust)
			sleep(time.Until(held.TermExpiry.Add(S)) - time.Nanosecond)
			if n := len(b.opsSince(time.Time{}, le.OpAcquire)); n > 0 {
				t.Fatalf("%d writes before TermExpiry + S", n)
			}
			sleep(spread)
			b.leads(t)
			if got := b.View().ElectionNumber(); got != 8 {
				t.Fatalf("token %d, want 8", got)
			}
		})
	}
}

// Rule 5: a record that comes along with a lost race is no older than the attempt. If its term has run out since, it is
// read again.
func TestRule05LostRaceIsAsOldAsItsAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		held := rival(3)
		held.TermLength, held.TermExpiry = time.Second, time.Now().Add(time.Second)
		store := d.Handle()
		store.Inject(memory.Faults(func(memory.Op) memory.Fault {
			d.Replace(held) // wins the race
			return memory.Fault{AnswerDelay: 3 * time.Second}
		}).On(memory.Write).Times(1))
		begin := time.Now()
		a := join(t, d, "a", func(c *config) { c.Decider = store.Polled() })
		sleep(3*time.Second + spread)
		a.leads(t)
		var kinds []le.OpKind
		for _, op := range a.opsSince(begin) {
			kinds = append(kinds, op.Kind)
		}
		if want := []le.OpKind{le.OpRead, le.OpAcquire, le.OpRead, le.OpAcquire}; !slices.Equal(kinds, want) {
			t.Errorf("it has asked for %v, want %v", kinds, want)
		}
	})
}

// Rule 5: one's own record is not acquired while a callback still runs.
func TestRule05NoCampaignWhileCallbacksRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		a := join(t, d, "a", func(c *config) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
		})
		synctest.Wait()
		a.store.Inject(memory.LoseRequests())
		sleep(14 * time.Second)
		a.store.Inject(nil)
		sleep(10 * T)
		if n := a.count(); n != 1 || len(a.opsSince(time.Time{}, le.OpAcquire)) != 1 {
			t.Fatalf("%d leaderships while the first one's callback runs", n)
		}
		close(release)
		sleep(time.Second)
		a.leads(t)
	})
}

// Rule 10: with clocks at both ends of the bound, the views of successive leaders
// do not overlap in true time, and the gap between them is not larger than it
// must be.
func TestRule10SuccessiveViewsNeverOverlap(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new time.Duration
	}{{"slow leader, fast challenger", -S, S}, {"fast leader, slow challenger", S, -S}, {"no skew", 0, 0}} {
		scene(t, c.name, func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(cfg *config) { cfg.Clock = clocks.NewOffset(nil, c.old) })
			synctest.Wait()
			b := join(t, d, "b", func(cfg *config) { cfg.Clock = clocks.NewOffset(nil, c.new) })
			sleep(20 * time.Second)
			a.leads(t)
			a.store.Inject(memory.LoseRequests())
			view := a.View()
			for !b.View().ValueInFuture() {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
				if b.View().ValueInFuture() && view.ValueInFuture() {
					t.Fatal("two views are true at once")
				}
			}
			// a's view ended S before its TermExpiry by a's clock, b came S
			// after it by b's.
			trueEnd := view.Get().Add(-c.old)
			gap := b.leadership(t, 0).from.Sub(trueEnd)
			near(t, "the gap between the views", gap, 2*S+c.old-c.new+spread/2, spread/2)
			if gap < 0 {
				t.Fatalf("the views overlap by %v", -gap)
			}
		})
	}
}

// Rule 5: a term that was over long before a candidate started is nobody else's to wait for.
func TestRule05OverAtTheStart(t *testing.T) {
	for name, how := range styles {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			e := rival(2)
			e.TermExpiry = time.Now().Add(-time.Hour)
			d.Replace(e)
			a := join(t, d, "a", how)
			synctest.Wait()
			a.leads(t)
		})
	}
}

// any2 is a store that keeps what other stores refuse, as a record that was edited by
// hand: memory checks what is written, Replace does not.
func replaced(t *testing.T, spoil func(e *le.RaceEntry)) *memory.Decider {
	t.Helper()
	d := memory.NewDecider()
	e := rival(3)
	spoil(e)
	d.Replace(e)
	return d
}

// Rule 20: numbers from 2^63 on are damage: an error that says what to do, and the
// record stays as it is.
func TestRule20NumbersPastTheirEnd(t *testing.T) {
	for name, spoil := range map[string]func(e *le.RaceEntry){
		"number 2^64-1":            func(e *le.RaceEntry) { e.ElectionNumber = math.MaxUint64 },
		"number 2^63":              func(e *le.RaceEntry) { e.ElectionNumber = 1 << 63 },
		"number 2^64-1, vacant":    func(e *le.RaceEntry) { e.LeaderID, e.ElectionNumber = "", math.MaxUint64 },
		"extension 2^64-1":         func(e *le.RaceEntry) { e.Extension = math.MaxUint64 },
		"extension 2^64-1, vacant": func(e *le.RaceEntry) { e.LeaderID, e.Extension = "", math.MaxUint64 },
	} {
		scene(t, name, func(t *testing.T) {
			d := replaced(t, spoil)
			before := *d.Entry()
			for _, adjust := range []func(*config){func(*config) {}, polled, unsynchronized} {
				a := join(t, d, "a", adjust)
				err := a.Wait()
				if !errors.Is(err, le.ErrPermanent) || !strings.Contains(err.Error(), "damaged") {
					t.Errorf("Acquire: %v", err)
				}
				if a.count() > 0 {
					t.Error("led")
				}
			}
			for what, err := range map[string]error{
				"Transfer": le.Transfer(t.Context(), d, "b"), "StepDown": le.StepDown(t.Context(), d, false),
				"Watch": le.WatchConfig{Decider: d}.Watch(t.Context(), func(context.Context, le.RaceEntry) {}),
			} {
				if !errors.Is(err, le.ErrPermanent) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if after := *d.Entry(); after.ElectionNumber != before.ElectionNumber || after.Extension != before.Extension {
				t.Errorf("%+v became %+v", before, after)
			}
		})
	}
	// The last number of all is nobody's: there is none after it.
	bubble(t, func(t *testing.T) {
		d := replaced(t, func(e *le.RaceEntry) {
			e.LeaderID, e.ElectionNumber, e.TermExpiry = "", le.MaxElectionNumber, time.Now()
		})
		a := join(t, d, "a", func(c *config) { c.Decider = noWrites{c.Decider, t} })
		if err := a.Wait(); !errors.Is(err, le.ErrPermanent) || a.count() > 0 {
			t.Errorf("%v, led %d times", err, a.count())
		}
	})
}

// noWrites is a store that must not be asked to write, not even what memory refuses before any fault.
type noWrites struct {
	le.RaceDecider
	t *testing.T
}

func (n noWrites) WriteEntry(_ context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	n.t.Errorf("the store was asked to write %+v", e)
	return nil, le.ErrPermanent
}

// Rule 20: whatever durations and times are in a Config or in a record, no sum of them
// overflows: no hot loop, no view too long, no election stopped for ever.
func TestRule20Extremes(t *testing.T) {
	const longest = time.Duration(math.MaxInt64)
	calm := func(t *testing.T, what string, n int, over time.Duration) {
		t.Helper()
		if most := 4 + int(over/time.Second)*4; n > most {
			t.Errorf("%s: %d times in %v, want at most %d", what, n, over, most)
		}
	}
	scene(t, "PollInterval", func(t *testing.T) {
		d := replaced(t, func(e *le.RaceEntry) { e.TermExpiry = time.Now().Add(time.Hour) })
		late := func(c *config) { // nothing begins at zero, to which anything can be added
			c.PollInterval = longest
			c.Decider.(*memory.Decider).Inject(memory.LoseRequests().On(memory.Read).Times(1))
			polled(c)
		}
		asked := 0
		a := join(t, d, "a", late)
		sick := join(t, memory.NewDecider(), "sick", late, func(c *config) {
			c.Healthy = func(context.Context) error { asked++; return errors.New("sick") }
		})
		reads := 0
		go func() {
			handle := d.Handle()
			handle.Inject(memory.LoseRequests().On(memory.Read).Times(1))
			_ = le.WatchConfig{Decider: handle.Polled(), PollInterval: longest, Trace: &le.Trace{StoreOp: func(le.StoreOp) { reads++ }}}.
				Watch(t.Context(), func(context.Context, le.RaceEntry) {})
		}()
		sleep(10 * time.Second)
		calm(t, "reads", len(a.opsSince(time.Time{})), 10*time.Second)
		calm(t, "reads of the sick", len(sick.opsSince(time.Time{})), 10*time.Second)
		if asked == 0 {
			t.Error("Healthy was not asked")
		}
		calm(t, "Watch's reads", reads, 10*time.Second)
		calm(t, "Healthy", asked, 10*time.Second)
	})
	scene(t, "DrainTimeout", func(t *testing.T) {
		d := memory.NewDecider()
		var ended time.Time
		a := join(t, d, "a", func(c *config) {
			c.DrainTimeout = longest
			c.OnElected = func(ctx context.Context, _ *le.TimeView) {
				<-ctx.Done()
				time.Sleep(3 * T)
			}
			c.OnOusting = func(ctx context.Context) {
				select {
				case <-ctx.Done():
					ended = time.Now()
				case <-time.After(2 * T):
				}
			}
		})
		sleep(time.Second)
		a.stop()
		sleep(2*T + S)
		if a.View().ValueInFuture() == false || !ended.IsZero() {
			t.Error("the longest drain was none")
		}
		<-a.Done()
	})
	for _, unsync := range []bool{false, true} {
		for _, term := range []time.Duration{longest, longest - 1, MaxPlus(time.Hour)} {
			scene(t, fmt.Sprintf("another's TermLength %v, unsynchronized %v", term, unsync), func(t *testing.T) {
				d := replaced(t, func(e *le.RaceEntry) {
					e.TermLength, e.TermExpiry, e.Unsynchronized = term, time.Now().Add(time.Minute), unsync
				})
				a := join(t, d, "a")
				sleep(10 * time.Second)
				calm(t, "reads", len(a.opsSince(time.Time{})), 10*time.Second)
				if a.count() > 0 {
					t.Error("took what another holds")
				}
			})
		}
	}
	for name, expiry := range map[string]time.Time{
		"year 1": time.Time{}.Add(time.Hour), "year 9999": time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		scene(t, "TermExpiry in "+name, func(t *testing.T) {
			d := replaced(t, func(e *le.RaceEntry) { e.TermExpiry = expiry })
			var l lines
			a := join(t, d, "a", logged(&l))
			sleep(10 * time.Second)
			calm(t, "operations", len(a.opsSince(time.Time{})), 10*time.Second)
			if over := expiry.Before(time.Now()); over != (a.count() > 0) {
				t.Errorf("led %d times", a.count())
			}
			if over := expiry.Before(time.Now()); over == (l.count("clocks disagree") > 0) {
				t.Errorf("log: %s", &l)
			}
		})
	}
}

// MaxPlus is a term that is d too long.
func MaxPlus(d time.Duration) time.Duration { return le.MaxTermLength + d }

// Contract: what ends its goroutine, as t.FailNow does, ends nothing else: store calls
// fail and are made again, later hooks are called.
func TestContractGoexitElsewhere(t *testing.T) {
	scene(t, "store", func(t *testing.T) {
		d := memory.NewDecider()
		var calls atomic.Int64
		a := join(t, d, "a", faulty(func(op memory.Op) memory.Fault {
			if op.Kind != memory.Feed && calls.Add(1) <= 8 {
				runtime.Goexit()
			}
			return memory.Fault{}
		}))
		sleep(3 * time.Minute)
		a.leads(t)
		if n := calls.Load(); n <= 8 {
			t.Errorf("only %d calls", n)
		}
	})
	scene(t, "trace", func(t *testing.T) {
		var mu sync.Mutex
		told := 0
		d := memory.NewDecider()
		join(t, d, "a", func(c *config) {
			c.Trace = &le.Trace{StoreOp: func(le.StoreOp) {
				mu.Lock()
				told++
				mu.Unlock()
				runtime.Goexit()
			}}
		})
		sleep(10 * T)
		mu.Lock()
		defer mu.Unlock()
		if told < 15 {
			t.Errorf("%d events were told in ten terms", told)
		}
	})
}

// Rule 17: writes that are refused for good before any has worked end the campaign,
// though reads work: such a candidate would never lead. Later they are reported.
func TestRule17WritesRefusedForGood(t *testing.T) {
	denied := fmt.Errorf("read-only credentials: %w", le.ErrPermanent)
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		handle := d.Handle()
		handle.Inject(memory.Fail(denied).On(memory.Write))
		err := le.Config{Decider: handle, LeaderID: "a"}.Run(t.Context(), func(context.Context, *le.TimeView) error {
			t.Error("ran")
			return nil
		})
		if !errors.Is(err, denied) {
			t.Errorf("Run: %v", err)
		}
	})
	bubble(t, func(t *testing.T) {
		_, a := leader(t)
		a.store.Inject(memory.Fail(denied).On(memory.Write))
		sleep(3 * T)
		a.follows(t)
		select {
		case <-a.Done():
			t.Fatalf("ended by a refusal though writes had worked: %v", a.Wait())
		default:
		}
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
	// A read that has shown a write of one's own is as good as its answer.
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", func(c *config) {
			writes := 0
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind != memory.Write {
					return memory.Fault{}
				}
				switch writes++; writes {
				case 1:
					return memory.Fault{Err: memory.ErrLost, Lands: true}
				case 2:
					return memory.Fault{Err: denied}
				}
				return memory.Fault{}
			})
		})
		sleep(time.Minute)
		a.leads(t)
		if a.count() != 1 {
			t.Errorf("led %d times", a.count())
		}
	})
	// A feed that is refused for good is no reason to end: the record is polled.
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", faulty(memory.Fail(denied).On(memory.Feed)))
		sleep(T)
		a.leads(t)
	})
}

// A store that has judged a write works: what it refuses for good afterwards passes, or not.
func TestRule17AJudgedWriteHasWorked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		writes := 0
		a := join(t, d, "a", func(c *config) {
			refuse := memory.Fail(&le.LostRaceError{}).On(memory.Write)
			c.Decider.(*memory.Decider).Inject(func(op memory.Op) memory.Fault {
				if op.Kind != memory.Write {
					return memory.Fault{}
				}
				if writes++; writes == 1 {
					return refuse(op)
				}
				return memory.Fault{Err: fmt.Errorf("no permission: %w", le.ErrPermanent)}
			})
			polled(c)
		})
		sleep(10 * T)
		if a.Status() == le.Stopped || writes < 2 {
			t.Fatalf("after %d writes it has stopped: %v", writes, a.Wait())
		}
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
}

type named struct{ *memory.Decider }

func (named) String() string { return "bucket/object" }

// A campaign that is started under a test's ctx ends with the test, also in a bubble
// in which time stands still by then.
func TestStartUnderATestsContext(t *testing.T) {
	for name, clock := range map[string]func() clocks.Clock{"system": clocks.System, "offset": func() clocks.Clock { return clocks.NewOffset(nil, 0) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memory.NewDecider()
				for _, id := range []string{"a", "b"} {
					if _, err := (le.Config{Decider: d.Handle(), LeaderID: id, Clock: clock(),
						OnElected: func(ctx context.Context, _ *le.TimeView) { <-ctx.Done() }}).Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// waits is a store that does not answer, and says when it is given up what it was waiting for.
type waits struct{ le.RaceDecider }

func (waits) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("somebody holds the lock: %w", ctx.Err())
}

// oneAtATime is a decider that does one thing at a time, and tells its place in turn as well.
type oneAtATime struct {
	le.RaceDecider
	turn chan struct{}
}

func (o *oneAtATime) take() (give func()) {
	o.turn <- struct{}{}
	return func() { <-o.turn }
}

func (o *oneAtATime) String() string {
	defer o.take()()
	return "a place"
}

func (o *oneAtATime) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	defer o.take()()
	return o.RaceDecider.ReadCurrent(ctx)
}

func (o *oneAtATime) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	defer o.take()()
	return o.RaceDecider.WriteEntry(ctx, e)
}

// Rule 13: the end of the leader's ctx waits for no store, also if the decider's String waits for
// the call that hangs.
func TestRule13PlaceThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a", polled, func(c *config) { c.Decider = &oneAtATime{c.Decider, make(chan struct{}, 1)} })
		sleep(T)
		a.leads(t)
		release := make(chan struct{})
		defer func() {
			close(release)
			sleep(time.Second)
		}()
		a.store.Inject(memory.Hang(release))
		begin := time.Now()
		<-a.leadership(t, 0).ctx.Done()
		if took := time.Since(begin); took > T-S {
			t.Errorf("ctx ended after %v", took)
		}
		a.store.Inject(nil)
	})
}

// after is closed after d.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}
