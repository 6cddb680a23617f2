//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// lines is a log.
type lines struct{ logtest.Log }

func (l *lines) count(what string) int { return strings.Count(l.String(), what) }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// logged gives a candidate a log.
func logged(l *lines) func(*config) { return func(c *config) { c.Logger = l.logger() } }

// Without a Logger the program's own gets what goes wrong, and nothing else.
func TestWithoutALoggerTheDefaultWarns(t *testing.T) {
	var l lines
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(old)
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) { c.Logger = nil })
		sleep(time.Minute)
		if n := l.count("\n"); n > 0 {
			t.Errorf("%d lines of a healthy candidate:\n%s", n, &l)
		}
		a.store.Inject(memory.LoseRequests())
		sleep(time.Minute)
		if l.count("level=WARN") == 0 || l.count("a store operation failed") == 0 || l.count("level=INFO")+l.count("level=DEBUG") > 0 {
			t.Errorf("logged:\n%s", &l)
		}
	})
}

// The error of a caller that waited in vain says what the store said, even if that was nothing, and
// wraps the ctx's error.
func TestStoresLastErrorIsTold(t *testing.T) {
	hang := make(chan struct{})
	for name, c := range map[string]struct {
		fault memory.Faults
		says  string
	}{
		"fails": {memory.LoseRequests(), "connection lost"},
		"hangs": {func(memory.Op) memory.Fault { return memory.Fault{Hang: hang} }, "no answer"},
	} {
		for call, f := range map[string]func(ctx context.Context, cfg le.Config) error{
			"Acquire": func(ctx context.Context, cfg le.Config) error { return cfg.Acquire(ctx) },
			"Run": func(ctx context.Context, cfg le.Config) error {
				return cfg.Run(ctx, func(context.Context, *le.TimeView) error { return nil })
			},
			"Watch": func(ctx context.Context, cfg le.Config) error {
				return le.WatchConfig{Decider: cfg.Decider}.Watch(ctx, func(context.Context, le.RaceEntry) {})
			},
		} {
			t.Run(call+" "+name, func(t *testing.T) {
				for _, wait := range []time.Duration{time.Second, time.Minute} {
					bubble(t, func(t *testing.T) {
						d := memory.NewDecider()
						hang = make(chan struct{})
						defer close(hang)
						d.Inject(c.fault)
						ctx, cancel := context.WithTimeout(t.Context(), wait)
						defer cancel()
						err := f(ctx, le.Config{Decider: d.Polled(), LeaderID: "a", Logger: slog.New(slog.DiscardHandler)})
						if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.says) {
							t.Errorf("after %v: %v, want it to say %q", wait, err, c.says)
						}
					})
				}
			})
		}
	}
	bubble(t, func(t *testing.T) {
		a := join(t, memory.NewDecider(), "a")
		a.store.Inject(memory.LoseRequests())
		sleep(10 * time.Second)
		if err := a.LastError(); !errors.Is(err, memory.ErrLost) {
			t.Errorf("LastError is %v", err)
		}
		a.store.Inject(nil)
		sleep(T)
		if err := a.LastError(); err != nil {
			t.Errorf("LastError is %v, of a store that works", err)
		}
		a.quit()
		if err := a.Wait(); err != context.Canceled {
			t.Errorf("%v", err)
		}
	})
}

// A leader that resigns from OnElected, and not with its own ctx, waits for itself: until its view
// has ended, and then it is told so.
func TestResignFromOnElectedWithAnotherCtx(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		self := make(chan *le.Campaign, 1)
		resigned := make(chan error, 1)
		var view *le.TimeView
		a := join(t, d, "a", func(c *config) {
			c.OnElected = func(ctx context.Context, v *le.TimeView) {
				if view != nil {
					<-ctx.Done()
					return
				}
				view = v
				resigned <- (<-self).Resign(context.Background())
			}
		})
		self <- a.Campaign
		sleep(3 * T)
		select {
		case err := <-resigned:
			if err == nil || !strings.Contains(err.Error(), "OnElected has not returned") {
				t.Errorf("Resign returned %v", err)
			}
		default:
			t.Error("Resign waits for itself")
		}
		if view.ValueInFuture() {
			t.Error("the view is alive")
		}
	})
}

// Rule 17: a permission that is refused may be granted by a server that has begun, or when a new one
// has got through: it ends a campaign if it was refused for a term.
func TestRule17DeniedForATerm(t *testing.T) {
	denied := func(memory.Op) memory.Fault { return memory.Fault{Err: fmt.Errorf("403: %w", le.ErrDenied)} }
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a", polled)
		a.store.Inject(denied)
		sleep(T - time.Second)
		a.store.Inject(nil)
		sleep(T)
		a.leads(t)
	})
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(denied)
		begun := time.Now()
		err := le.Config{Decider: d.Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S}.Acquire(t.Context())
		if took := time.Since(begun); !errors.Is(err, le.ErrDenied) || took < T || took > 2*T {
			t.Errorf("%v after %v", err, took)
		}
	})
	bubble(t, func(t *testing.T) { // other answers between
		d := memory.NewDecider()
		n := 0
		d.Inject(func(memory.Op) memory.Fault {
			if n++; n%2 == 0 {
				return memory.Fault{Err: memory.ErrLost}
			}
			return denied(memory.Op{})
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*T)
		defer cancel()
		if err := (le.Config{Decider: d.Polled(), LeaderID: "a", TermLength: T, MaxClockSkew: S}).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

var errRefused = errors.New("dial tcp 192.0.2.7:5432: connect: connection refused")

// outages are stores that fail in all ways.
var outages = map[string]func() memory.Faults{
	"refused": func() memory.Faults { return memory.Fail(errRefused) },
	"hangs":   func() memory.Faults { return memory.Always(memory.Fault{AnswerDelay: 10 * time.Hour}) },
	"by turns": func() memory.Faults {
		n := 0
		return func(memory.Op) memory.Fault {
			if n++; n%2 == 0 {
				return memory.Fault{Err: fmt.Errorf("403: %w", le.ErrPermanent)}
			}
			return memory.Fault{Err: errRefused}
		}
	},
}

// An outage takes few lines of the log: one or two when it begins, one a minute, and one or two when
// it is over. The lines say how many calls have failed. So for a leader, a standby and an observer.
func TestOutageIsLoggedBriefly(t *testing.T) {
	for name, fault := range outages {
		for _, feed := range []bool{false, true} {
			scene(t, fmt.Sprintf("%s, feed %v", name, feed), func(t *testing.T) {
				d := memory.NewDecider()
				logs, stores := map[string]*lines{}, []*memory.Decider{}
				for _, id := range []string{"leader", "standby"} {
					logs[id] = &lines{}
					m := join(t, d, id, logged(logs[id]), fed(feed))
					stores = append(stores, m.store)
					sleep(time.Second)
				}
				logs["observer"] = &lines{}
				o := d.Handle()
				var observed le.RaceDecider = o
				if !feed {
					observed = o.Polled()
				}
				watch(t, le.WatchConfig{Decider: observed, MaxClockSkew: S, Logger: logs["observer"].logger()})
				sleep(time.Minute)
				for _, l := range logs {
					if l.count("level=WARN") > 0 {
						t.Errorf("in calm:\n%s", l)
					}
					l.Take()
				}
				for _, s := range append(stores, o) {
					s.Inject(fault())
				}
				sleep(time.Minute)
				for who, l := range logs {
					if n := l.count("level=WARN"); n < 1 || n > 6 || l.count("operation failed") == 0 {
						t.Errorf("%s: %d warnings in the first minute:\n%s", who, n, l)
					}
					l.Take()
				}
				sleep(time.Hour)
				for who, l := range logs {
					if n := l.count("level=WARN"); n < 40 || n > 61 || l.count(" failed=") < n-1 {
						t.Errorf("%s: %d warnings in an hour:\n%s", who, n, l)
					}
					l.Take()
				}
				for _, s := range append(stores, o) {
					s.Inject(nil)
				}
				sleep(2 * time.Minute)
				for who, l := range logs {
					if l.count("the store is back") != 1 || l.count(" after=1h") < 1 || l.count(" failed=") < 1 || l.count("\n") > 6 {
						t.Errorf("%s, when it is over:\n%s", who, l)
					}
				}
			})
		}
	}
}

// What the log says, and how often.
func TestLog(t *testing.T) {
	scenes{
		"calls that fail and work by turns are few lines": func(t *testing.T) {
			var l lines
			a := join(t, memory.NewDecider(), "a", polled, logged(&l))
			sleep(time.Minute)
			a.store.Inject(everyOther(nil))
			l.Take()
			sleep(time.Hour)
			if n := l.count("tried again"); n < 2 || n > 61 {
				t.Errorf("%d warnings in an hour:\n%s", n, &l)
			}
			if n := l.count("the store is back"); n > 61 {
				t.Errorf("it is back %d times in an hour", n)
			}
		},
		"while writes fail the store is not back, though reads work": func(t *testing.T) {
			var l lines
			a := join(t, memory.NewDecider(), "a", polled, logged(&l))
			sleep(time.Minute)
			a.store.Inject(memory.Fail(errRefused).On(memory.Write))
			sleep(time.Hour)
			if n := l.count("the store is back"); n > 0 {
				t.Errorf("it is back %d times while writes fail:\n%s", n, &l)
			}
			a.store.Inject(nil)
			sleep(T)
			if n := l.count("the store is back"); n != 1 {
				t.Errorf("it is back %d times:\n%s", n, &l)
			}
		},
		"nor do others' writes that work say so": func(t *testing.T) {
			var l lines
			d := memory.NewDecider()
			a := join(t, d, "a", polled, logged(&l))
			sleep(time.Minute)
			a.store.Inject(memory.Fail(errRefused).On(memory.Write))
			n := d.Entry().ElectionNumber
			for range 60 {
				n++
				d.Replace(rival(n))
				sleep(T + 30*time.Second)
			}
			if n := l.count("the store is back"); n > 0 || l.count("level=WARN") == 0 {
				t.Errorf("it is back %d times while its writes fail:\n%s", n, &l)
			}
		},
		"a store that cannot push is polled for good, and one line says so": func(t *testing.T) {
			var l lines
			join(t, memory.NewDecider(), "a", logged(&l), func(c *config) {
				c.Decider = noFeed{c.Decider.(*memory.Decider).Polled()}
			})
			sleep(time.Hour)
			if n := l.count("the feed failed"); n != 1 || l.count("level=WARN") != 1 {
				t.Errorf("logged:\n%s", &l)
			}
		},
		"its first line has the place, and what the first answer adds is said once": func(t *testing.T) {
			var l lines
			err := le.Config{Decider: &resolving{RaceDecider: memory.NewDecider()}, LeaderID: "a", Logger: l.logger()}.
				Run(t.Context(), func(context.Context, *le.TimeView) error {
					sleep(le.DefaultTermLength)
					return nil
				})
			must(t, err)
			first, _, _ := strings.Cut(l.String(), "\n")
			if !strings.Contains(first, "campaign started") || !strings.Contains(first, `place="table e"`) {
				t.Errorf("the first line is %s", first)
			}
			if n := l.count(`place="host h, table s.e"`); n != 1 {
				t.Errorf("the place that was found is told %d times:\n%s", n, &l)
			}
		},
		"what does not return is named, once": func(t *testing.T) {
			var l lines
			work, news := make(chan struct{}), make(chan struct{})
			_, a := leader(t, logged(&l), func(c *config) {
				c.DrainTimeout = 5 * time.Second
				c.OnElected = func(context.Context, *le.TimeView) { <-work }
				c.LeaderChanged = func(context.Context, le.RaceEntry) { <-news }
			})
			a.stop()
			sleep(4 * time.Second)
			if n := l.count("past DrainTimeout"); n != 0 {
				t.Errorf("named too early:\n%s", &l)
			}
			sleep(time.Minute)
			if n := l.count("past DrainTimeout"); n != 1 || l.count("runs=OnElected") != 1 {
				t.Errorf("named %d times:\n%s", n, &l)
			}
			close(work)
			sleep(time.Minute)
			if n := l.count("Wait waits for it"); n != 1 || l.count("runs=LeaderChanged") != 1 {
				t.Errorf("named %d times:\n%s", n, &l)
			}
			close(news)
			<-a.Done()
		},
		"clocks that disagree by more than twice the skew, once a minute, and of another leader at once": func(t *testing.T) {
			d := memory.NewDecider()
			laptop := join(t, d, "laptop", unstamped, on(clocks.NewOffset(nil, 2*time.Hour)))
			sleep(time.Second)
			var standby, observer lines
			join(t, d, "a", unstamped, logged(&standby))
			watch(t, le.WatchConfig{Decider: d.Handle(), MaxClockSkew: S, Logger: observer.logger()})
			sleep(time.Hour)
			const line = "clocks disagree"
			for name, l := range map[string]*lines{"standby": &standby, "observer": &observer} {
				if n := l.count(line); n < 50 || n > 61 {
					t.Errorf("the %s logged %d lines in an hour, want about one a minute", name, n)
				}
			}
			before := observer.count(line)
			laptop.quit()
			e := rival(d.Entry().ElectionNumber + 1)
			e.TermExpiry = time.Now().Add(time.Hour)
			d.Replace(e)
			sleep(time.Second)
			if n := observer.count(line); n != before+1 {
				t.Errorf("%d lines about another leader, want 1", n-before)
			}
		},
		"which of two clocks may be wrong, and that they agree again": func(t *testing.T) {
			unround()
			clock := clocks.NewOffset(nil, time.Hour)
			d := memory.New(&memory.Options{Clock: clock})
			var l lines
			a := join(t, d, "a", logged(&l))
			sleep(time.Minute)
			clock.Set(0)
			sleep(time.Hour)
			if a.leads(t); !d.Entry().Unsynchronized {
				t.Errorf("an hour after the repair, the record is %+v, want it marked still", d.Entry())
			}
			for _, line := range []string{"the clock is wrong, or the store's is", "if the store's clock is the wrong one", "the clock is no longer proved wrong", "stays so until it ends"} {
				if n := l.count(line); n != 1 {
					t.Errorf("%d times %q, want 1: %s", n, line, &l)
				}
			}
		},
		"a store that refuses each write, once": func(t *testing.T) {
			var l lines
			a := join(t, memory.NewDecider(), "a", faulty(memory.Fail(le.ErrLostRace).On(memory.Write)), logged(&l))
			sleep(10 * T)
			a.quit()
			if n := l.count("refuses this candidate's writes"); n != 1 {
				t.Errorf("told %d times: %s", n, &l)
			}
		},
		"who leads, and that a job has failed": func(t *testing.T) {
			d := memory.NewDecider()
			d.Replace(rival(3))
			var l lines
			err := le.Config{Decider: d, LeaderID: "a", Logger: l.logger()}.
				Run(t.Context(), func(context.Context, *le.TimeView) error { return errors.New("out of paper") })
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{"campaign started", "another leads", "leader=rival", "token=3", "leading", "the job failed: out of paper"} {
				if l.count(want) == 0 {
					t.Errorf("the log lacks %q:\n%s", want, &l)
				}
			}
			if l.count("is done") > 0 {
				t.Errorf("a failed job was called done:\n%s", &l)
			}
		},
		"a call that was given up names its place": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", func(c *config) {
				c.Decider = named{c.Decider.(*memory.Decider)}
				c.Decider.(named).Inject(memory.Slow(time.Hour))
			})
			sleep(T)
			ops := a.opsSince(time.Time{}, le.OpRead)
			if len(ops) == 0 || !ops[0].Abandoned || !errors.Is(ops[0].Err, context.DeadlineExceeded) {
				t.Fatalf("%+v", ops)
			}
			for _, want := range []string{"read", "bucket/object", "3.75s"} {
				if !strings.Contains(ops[0].Err.Error(), want) {
					t.Errorf("%q lacks %q", ops[0].Err, want)
				}
			}
		},
		"and what it has waited for": func(t *testing.T) {
			var l lines
			d := waits{memory.NewDecider()}
			for what, run := range map[string]func(context.Context) error{
				"campaign": le.Config{Decider: d, LeaderID: "a", Logger: l.logger(), OnElected: func(context.Context, *le.TimeView) {}}.Acquire,
				"observer": func(ctx context.Context) error {
					return le.WatchConfig{Decider: d, Logger: l.logger()}.Watch(ctx, func(context.Context, le.RaceEntry) {})
				},
			} {
				l.Take()
				ctx, cancel := context.WithTimeout(t.Context(), le.DefaultTermLength/3) // one call has been given up
				err := run(ctx)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within") || !strings.Contains(err.Error(), "holds the lock") {
					t.Errorf("%s: %v", what, err)
				}
				if l.count("holds the lock") == 0 {
					t.Errorf("%s: the log lacks it:\n%s", what, &l)
				}
			}
		},
		"no warning of a replica that lags, nor of a record that a leader writes again": func(t *testing.T) {
			d := memory.NewDecider()
			var log lines
			a := join(t, d, "a", polled, logged(&log))
			sleep(5 * T)
			a.leads(t)
			d.Replace(nil)
			sleep(5 * T)
			a.leads(t)
			if log.count(goneBack) > 0 {
				t.Errorf("it says\n%s", &log)
			}
		},
	}.run(t)
}

// A second outage has lines of its own, for a leader and for a standby, whose feed fails as well.
func TestEachOutageIsLogged(t *testing.T) {
	for _, feed := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var l lines
			d, feeds := memory.NewDecider(), 0
			if feed {
				join(t, d, "leader")
				sleep(time.Second)
				feeds = 1
			}
			a := join(t, d, "a", logged(&l), fed(feed))
			for range 2 {
				sleep(5 * time.Minute)
				l.Take()
				a.store.Inject(memory.LoseRequests())
				sleep(30 * time.Second)
				a.store.Inject(nil)
				sleep(time.Minute)
				if l.count("it will be tried again") != 1 || l.count("the store is back") != 1 ||
					l.count("the feed failed") != feeds || l.count("the feed delivers") != feeds || l.count("failed=0") > 0 {
					t.Errorf("logged:\n%s", &l)
				}
			}
		})
	}
}

// A write that lost a race shows that the store takes writes again. If another's record shows that a
// write that failed is over, the outage is over when no other has failed for a minute. So a standby,
// which writes no more for long, does not leave an outage of writes open.
func TestOutageOfWritesIsOverWithoutAWrite(t *testing.T) {
	for name, then := range map[string]func(d *memory.Decider) memory.Fault{
		"lost race": func(*memory.Decider) memory.Fault { return memory.Fault{Err: le.ErrLostRace} },
		"news": func(d *memory.Decider) memory.Fault {
			e := rival(first + 5)
			e.TermLength, e.TermExpiry = time.Hour, time.Now().Add(time.Hour)
			d.Replace(e)
			return memory.Fault{Err: errRefused}
		},
	} {
		scene(t, name, func(t *testing.T) {
			var l lines
			d := memory.NewDecider()
			d.Replace(rival(first))
			writes := 0
			join(t, d, "a", logged(&l), faulty(memory.Faults(func(memory.Op) memory.Fault {
				if writes++; writes == 1 {
					return memory.Fault{Err: errRefused}
				}
				return then(d)
			}).On(memory.Write)), polled)
			sleep(2*T + T/2 + time.Minute)
			if writes < 2 || l.count("the store is back") != 1 {
				t.Errorf("after %d writes:\n%s", writes, &l)
			}
		})
	}
}

// noFeed is a store that can push, by its type, and never does.
type noFeed struct{ le.RaceDecider }

func (noFeed) Changes(context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) { yield(nil, errRefused) }
}

// resolving is a decider that knows its place only when the store has answered.
type resolving struct {
	le.RaceDecider
	found atomic.Bool
}

func (r *resolving) String() string {
	if r.found.Load() {
		return "host h, table s.e"
	}
	return "table e"
}

func (r *resolving) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	defer r.found.Store(true)
	return r.RaceDecider.ReadCurrent(ctx)
}

// Whoever hears that a leadership has begun has heard of its record and of its view: metrics
// would say otherwise that nobody leads.
func TestTraceTellsOfTheViewBeforeTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		d := memory.NewDecider()
		a := join(t, d, "a", func(c *config) {
			c.Trace = &le.Trace{
				News:          func(e le.RaceEntry) { told = append(told, "news of "+e.LeaderID) },
				Extended:      func(e le.ViewExtended) { told = append(told, "view") },
				StatusChanged: func(s le.StatusChange) { told = append(told, s.To.String()) },
			}
		})
		synctest.Wait()
		a.quit()
		synctest.Wait()
		want := []string{"news of ", "news of a", "view", "leading", "draining"}
		if len(told) < len(want) || !slices.Equal(told[:len(want)], want) {
			t.Errorf("told %q, want %q first", told, want)
		}
	})
}

// Every hook of every Trace is called, in their order, also those that were added later; what is
// joined does not depend on who comes first.
func TestJoinTraces(t *testing.T) {
	var called []int
	trace := func(n int, without int) *le.Trace {
		made := &le.Trace{}
		hooks := reflect.ValueOf(made).Elem()
		for i := range hooks.NumField() {
			if i != without {
				hooks.Field(i).Set(reflect.MakeFunc(hooks.Field(i).Type(), func([]reflect.Value) []reflect.Value { called = append(called, n); return nil }))
			}
		}
		return made
	}
	for without := range reflect.TypeFor[le.Trace]().NumField() {
		all := reflect.ValueOf(le.JoinTraces(nil, trace(1, -1), &le.Trace{}, trace(2, without), nil, trace(3, -1))).Elem()
		for i := range all.NumField() {
			called = nil
			want := []int{1, 2, 3}
			if i == without {
				want = []int{1, 3}
			}
			if all.Field(i).Call([]reflect.Value{reflect.Zero(all.Field(i).Type().In(0))}); !slices.Equal(called, want) {
				t.Errorf("%s calls %v, want %v", all.Type().Field(i).Name, called, want)
			}
		}
	}
	if none := le.JoinTraces(nil, nil); none == nil || none.News != nil {
		t.Errorf("of none: %+v", none)
	}
}

// In a ctx of no leadership there is a view, which is over, and which nobody can set.
func TestViewFrom(t *testing.T) {
	view := viewtest.New(nil, 7)
	if got := le.ViewFrom(le.WithView(t.Context(), view.TimeView)); got != view.TimeView {
		t.Error("another view")
	}
	for _, none := range []*le.TimeView{le.ViewFrom(t.Context()), le.ViewFrom(le.WithView(t.Context(), nil))} {
		if none.ValueInFuture() || none.ElectionNumber() != le.NoElections || none.Clock() == nil {
			t.Errorf("number %d, %v", none.ElectionNumber(), none.ValueInFuture())
		}
	}
}
