//go:build go1.25

package rules

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// Rule 1: TermExpiry is counted from before the request.
func TestRule01TermIsCountedFromBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		start := time.Now()
		a := join(t, d, "a", func(c *config) {
			c.Decider.(*memory.Decider).Inject(memory.Slow(2 * time.Second)) // the feed, too: news is no shortcut
		}, stayOn)
		sleep(9500 * time.Millisecond)
		a.leads(t)
		// The write began when the feed's first record had come, at 2 s.
		if got, want := d.Entry().TermExpiry, start.Add(2*time.Second+T); !got.Equal(want) {
			t.Fatalf("TermExpiry is %v after the start, want %v: the time before the request, not after", got.Sub(start), want.Sub(start))
		}
	})
}

// Rule 2: the view ends S before the term, and moves only with a confirmed
// write.
func TestRule02ViewEndsBeforeTheTermAndMovesWhenConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := join(t, d, "a")
		synctest.Wait()
		r := a.leadership(t, 0)
		if got, want := r.view.Get(), d.Entry().TermExpiry.Add(-S); !got.Equal(want) {
			t.Fatalf("the view ends at %v, want TermExpiry - S = %v", got, want)
		}
		before := r.view.Get()
		hang := make(chan struct{})
		a.store.Inject(memory.Hang(hang))
		sleep(7*time.Second + time.Millisecond) // an extension is on its way
		if !r.view.Get().Equal(before) {
			t.Fatal("the view moved before the write was confirmed")
		}
		a.store.Inject(nil)
		close(hang)
		synctest.Wait()
		if got, want := r.view.Get(), before.Add(7*time.Second); !got.Equal(want) {
			t.Fatalf("the view ends at %v after the confirmation, want %v", got, want)
		}
	})
}

// Rule 2: a view seen false once is false for ever, also when its candidate is
// elected again.
func TestRule02LatchAndOneViewPerLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := memory.NewDecider()
		clock := clocks.NewOffset(nil, 0)
		a := join(t, d, "a", func(c *config) { c.Clock = clock })
		synctest.Wait()
		old := a.leadership(t, 0)
		clock.Set(15 * time.Second)
		if old.view.ValueInFuture() {
			t.Fatal("alive past its end")
		}
		clock.Set(0)
		if old.view.ValueInFuture() {
			t.Fatal("the view came back to life when the clock was set back")
		}
		sleep(time.Minute)
		a.leads(t)
		if a.count() < 2 {
			t.Fatal("not elected again")
		}
		if old.view.ValueInFuture() || a.View() == old.view {
			t.Fatal("the old leadership's view lives on in the new one")
		}
		if old.number != first || old.view.ElectionNumber() != first || a.View().ElectionNumber() <= first {
			t.Fatalf("numbers %d and %d: each view keeps its own", old.view.ElectionNumber(), a.View().ElectionNumber())
		}
	})
}

// stuck is a slog.Handler that never returns until it is released.
type stuck struct{ release chan struct{} }

func (h stuck) Enabled(context.Context, slog.Level) bool  { <-h.release; return false }
func (h stuck) Handle(context.Context, slog.Record) error { <-h.release; return nil }
func (h stuck) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h stuck) WithGroup(string) slog.Handler             { return h }

// Rule 13: nothing delays the end of the leader's ctx: not the store, not user
// code.
func TestRule13CtxEndsWithTheViewWhateverHangs(t *testing.T) {
	hooks := map[string]func(c *config, release chan struct{}){
		"store only": func(*config, chan struct{}) {},
		"Healthy": func(c *config, release chan struct{}) {
			asked := false
			c.Healthy = func(context.Context) error {
				if asked {
					<-release
				}
				asked = true
				return nil
			}
		},
		"LeaderChanged": func(c *config, release chan struct{}) {
			c.LeaderChanged = func(context.Context, le.RaceEntry) { <-release }
		},
		"Logger": func(c *config, release chan struct{}) { c.Logger = slog.New(stuck{release}) },
		"Trace": func(c *config, release chan struct{}) {
			c.Trace = &le.Trace{
				StoreOp:       func(le.StoreOp) { <-release },
				StatusChanged: func(le.StatusChange) { <-release },
			}
		},
		"OnElected": func(c *config, release chan struct{}) {
			inner := c.OnElected
			c.OnElected = func(ctx context.Context, v *le.TimeView) { inner(ctx, v); <-release }
		},
	}
	for name, hook := range hooks {
		scene(t, name, func(t *testing.T) {
			d := memory.NewDecider()
			release := make(chan struct{})
			a := join(t, d, "a", func(c *config) { hook(c, release) })
			synctest.Wait()
			r := a.leadership(t, 0)
			a.store.Inject(memory.Hang(release)) // and it ignores its ctx
			end := r.view.Get()
			<-r.ctx.Done()
			if !time.Now().Equal(end) && name != "Healthy" {
				t.Errorf("ctx ended at %v, its view at %v", time.Now(), end)
			}
			if time.Now().After(end) {
				t.Errorf("ctx outlived its view by %v", time.Since(end))
			}
			time.Sleep(time.Until(end))
			if r.view.ValueInFuture() {
				t.Error("the view is alive after its end")
			}
			close(release)
			a.quit()
		})
	}
}

// A view that a test makes, and the copy of a campaign's.
func TestTimeView(t *testing.T) {
	scenes{
		"Set": func(t *testing.T) {
			for name, clock := range map[string]clocks.Clock{"nil": nil, "offset": clocks.NewOffset(nil, time.Hour)} {
				v := viewtest.New(clock, 0)
				if v.ValueInFuture() || !v.Get().IsZero() || v.Clock() == nil || v.ElectionNumber() != le.NoElections {
					t.Errorf("%s: a new view is in force", name)
				}
				soon := v.Clock().Now().Add(time.Hour)
				v.Set(soon)
				if !v.ValueInFuture() || !v.Get().Equal(soon) {
					t.Errorf("%s: Set to the future: %v", name, v.Get())
				}
				v.Set(v.Clock().Now())
				if v.ValueInFuture() {
					t.Errorf("%s: Set to now is still in the future", name)
				}
				v.Set(soon)
				if !v.ValueInFuture() {
					t.Errorf("%s: Set did not move it back", name)
				}
			}
		},
		"Set to any time, however far": func(t *testing.T) {
			for at, want := range map[time.Time]bool{
				{}: false, time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC): false, time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC): false,
				time.Unix(0, 0): false, time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC): true, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC): true,
			} {
				v := viewtest.New(nil, 0)
				if v.Set(at); v.ValueInFuture() != want || !v.Get().Equal(at) {
					t.Errorf("set to %v: %v, want %v", v.Get(), !want, want)
				}
			}
		},
		"it ends at its very nanosecond": func(t *testing.T) {
			v := viewtest.New(nil, 0)
			v.Set(time.Now().Add(time.Second))
			time.Sleep(time.Second - 1)
			if !v.ValueInFuture() {
				t.Fatal("ended early")
			}
			time.Sleep(time.Nanosecond)
			if v.ValueInFuture() {
				t.Fatal("alive at its end")
			}
		},
		"a copy ends with it": func(t *testing.T) {
			_, a := leader(t)
			copied := *a.View()
			sleep(2 * T)
			if !copied.ValueInFuture() || !copied.Get().Equal(a.View().Get()) {
				t.Errorf("the copy is valid until %v, and the view until %v", copied.Get(), a.View().Get())
			}
			go a.Resign(t.Context())
			sleep(time.Millisecond)
			if copied.ValueInFuture() {
				t.Error("the copy outlives the leadership")
			}
		},
		"one that is zero, or not there, is over": func(t *testing.T) {
			for name, v := range map[string]*le.TimeView{"zero": {}, "nil": nil} {
				if v.ValueInFuture() || !v.Get().IsZero() || v.Clock() == nil || v.ElectionNumber() != le.NoElections {
					t.Errorf("%s: the view is in force", name)
				}
			}
		},
	}.run(t)
}

// It may be asked and moved by many at once, and asking does not allocate.
func TestTimeViewConcurrency(t *testing.T) {
	v := viewtest.New(nil, 0)
	v.Set(time.Now().Add(time.Hour))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if !v.ValueInFuture() {
					t.Error("over")
					return
				}
				v.Set(time.Now().Add(time.Hour))
			}
		})
	}
	wg.Wait()
	if n := testing.AllocsPerRun(100, func() { v.ValueInFuture() }); n > 0 {
		t.Errorf("%v allocations", n)
	}

}

// readings is a clock as the system's is outside of a bubble: each time carries a
// monotonic reading, and the two may run apart. (In a bubble time.Now has none, so that
// nothing there sees what reads it.)
type readings struct {
	base    time.Time // with a monotonic reading: taken outside of the bubble
	begin   time.Time // by the bubble's clock
	ahead   atomic.Int64
	stalled atomic.Int64
}

// layout is that of a time.Time: the monotonic reading is ext, where the first bit of
// wall is set.
type layout struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// newReadings makes the clock. It must be called outside of a bubble, and begun in it.
func newReadings(t *testing.T) *readings {
	t.Helper()
	c := &readings{base: time.Now()}
	if c.base == c.base.Round(0) {
		t.Fatal("time.Now has no monotonic reading: make the clock outside of the bubble")
	}
	apart := c.reading(time.Hour, time.Second)
	if wall, mono := apart.Round(0).Sub(c.base.Round(0)), apart.Sub(c.base); wall != time.Hour || mono != time.Second {
		t.Fatalf("a time that is an hour and a second later is %v and %v later: has the layout of time.Time changed?", wall, mono)
	}
	return c
}

// reading is a time so far after the base.
func (c *readings) reading(wall, mono time.Duration) time.Time {
	t := c.base.Add(wall)
	(*layout)(unsafe.Pointer(&t)).ext = (*layout)(unsafe.Pointer(&c.base)).ext + int64(mono)
	return t
}

func (c *readings) start() { c.begin = time.Now() }

func (c *readings) Now() time.Time {
	passed := time.Since(c.begin)
	return c.reading(passed+time.Duration(c.ahead.Load()), passed-time.Duration(c.stalled.Load()))
}

func (c *readings) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

func (c *readings) SleepFor(ctx context.Context, d time.Duration) bool {
	return clocks.System().SleepFor(ctx, d)
}

func (c *readings) SleepUntil(ctx context.Context, t time.Time) bool {
	return c.SleepFor(ctx, c.Until(t))
}

// Rule 2, on times that carry a monotonic reading: a wall clock that is set back does
// not lengthen the view; nor does a suspend, during which the monotonic one stands
// still.
func TestRule02MonotonicReadings(t *testing.T) {
	for name, apart := range map[string]func(*readings){
		"set back":  func(c *readings) { c.ahead.Add(int64(-time.Hour)) },
		"suspended": func(c *readings) { c.ahead.Add(int64(5 * time.Second)) },
	} {
		clock := newReadings(t)
		scene(t, name, func(t *testing.T) {
			clock.start()
			d := memory.NewDecider()
			a := join(t, d, "a", on(clock), stayOn)
			synctest.Wait()
			a.leads(t)
			r := a.leadership(t, 0)
			a.store.Inject(memory.Fail(errors.New("cut off")))
			apart(clock)
			left := T - S
			if name == "suspended" {
				left -= 5 * time.Second
			}
			sleep(left - time.Nanosecond)
			if !r.view.ValueInFuture() {
				t.Error("ended early")
			}
			sleep(time.Nanosecond)
			if r.view.ValueInFuture() {
				t.Error("the view outlived its end")
			}
			sleep(time.Second)
			if !errors.Is(context.Cause(r.ctx), le.ErrExpired) {
				t.Errorf("cause %v", context.Cause(r.ctx))
			}
		})
	}
}

// Rule 1, on times that carry a monotonic reading: TermExpiry is compared as a wall
// time, and never goes back within a leadership.
func TestRule01MonotonicReadings(t *testing.T) {
	clock := newReadings(t)
	bubble(t, func(t *testing.T) {
		clock.start()
		d := memory.NewDecider()
		a := join(t, d, "a", on(clock), stayOn)
		sleep(8 * time.Second)
		a.leads(t)
		last := d.Entry().TermExpiry
		clock.ahead.Store(int64(-20 * time.Second))
		for range 20 {
			sleep(500 * time.Millisecond)
			if e := d.Entry(); e.ElectionNumber == first && e.TermExpiry.Before(last) {
				t.Fatalf("TermExpiry went back from %v to %v", last, e.TermExpiry)
			}
		}
		if d.Entry().Extension < 2 {
			t.Fatal("it was not extended")
		}
	})
}

// Rule 13, the same: a wall clock that jumps past the view's end is noticed within a
// second.
func TestRule13MonotonicReadings(t *testing.T) {
	clock := newReadings(t)
	bubble(t, func(t *testing.T) {
		clock.start()
		_, a := leader(t, on(clock), stayOn)
		r := a.leadership(t, 0)
		clock.ahead.Store(int64(time.Hour))
		sleep(time.Second)
		if r.ctx.Err() == nil {
			t.Error("the leader's ctx lives a second after the view has ended")
		}
	})
}

// telling is a clock that tells of its jumps.
type telling struct {
	*clocks.Offset
	mu sync.Mutex
	f  func()
}

func (c *telling) NotifyJump(f func()) (stop func(), err error) {
	c.asked(f)
	return func() { time.Sleep(time.Second); c.asked(nil) }, nil
}

func (c *telling) asked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.f = f
}

func (c *telling) hook() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.f
}

// Rule 13, with a clock that tells of its jumps: a leader's ctx ends at once when the clock jumps past the end
// of the view.
func TestRule13JumpsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := &telling{Offset: clocks.NewOffset(nil, 0)}
		_, a := leader(t, on(clock), stayOn, func(c *config) { c.TermLength = 10 * time.Minute })
		jumped := clock.hook()
		sleep(4*time.Minute + time.Second/2)
		clock.Set(time.Hour)
		jumped()
		synctest.Wait()
		if a.leadership(t, 0).ctx.Err() == nil {
			t.Error("the clock has jumped past the end of the view, and the leader's ctx goes on")
		}
		a.quit()
		if clock.hook() != nil {
			t.Error("the campaign is over, and still asks for jumps")
		}
	})
}

// A view that was seen over while the clock was ahead for a moment stays over, and its ctx ends when
// the campaign next looks: it does not sleep on until the extension that is due.
func TestViewSeenOverWhileTheClockWasAhead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := clocks.NewOffset(nil, 0)
		a := join(t, memory.NewDecider(), "a", on(clock), stayOn)
		sleep(3200 * time.Millisecond)
		r := a.leadership(t, 0)
		clock.Set(time.Hour)
		if r.view.ValueInFuture() {
			t.Fatal("the view is not over")
		}
		clock.Set(0)
		begun := time.Now()
		<-r.ctx.Done()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("ctx ended %v after the view", took)
		}
	})
}

// stops is a right clock, of a process that is stopped (SIGSTOP, a CPU limit) just after one of its readings:
// what was read is returned when the process continues. Both its times are of one reading.
type stops struct {
	clocks.SystemClock
	mu    sync.Mutex
	epoch time.Time
	mono  time.Duration
	at    time.Duration // the second reading from then on is the last before the stop
	until time.Duration
	reads int
}

func (s *stops) Now() time.Time {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Sub(s.epoch)
	if since >= s.at {
		if s.reads++; s.reads == 2 {
			time.Sleep(s.until - since)
		}
	}
	s.mono = since
	return now
}

func (s *stops) Monotonic() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mono
}

func (s *stops) Until(t time.Time) time.Duration { return time.Until(t) }

type stopsTelling struct{ *stops }

func (stopsTelling) NotifyJump(func()) (func(), error) { return func() {}, nil }

// Rule 13: the ctx ends with the view, at most a second late, though the process was stopped between the loop's look
// at the clock and its sleep.
func TestRule13StoppedBeforeTheSleep(t *testing.T) {
	for _, tells := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			clock := &stops{epoch: time.Now(), at: 6990 * time.Millisecond, until: 13500 * time.Millisecond}
			a := join(t, memory.NewDecider(), "a", func(c *config) {
				if c.Clock = clock; tells {
					c.Clock = stopsTelling{clock}
				}
			}, stayOn)
			synctest.Wait()
			a.leads(t)
			a.store.Inject(memory.LoseRequests())
			r := a.leadership(t, 0)
			<-r.ctx.Done()
			clock.mu.Lock()
			reads := clock.reads
			clock.mu.Unlock()
			if late := time.Since(r.view.Get()); reads < 2 || late < 0 || late > 1100*time.Millisecond {
				t.Errorf("the clock tells of jumps %t: ctx ended %v after the view", tells, late)
			}
		})
	}
}

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

// Rule 11: a release waits for half of the time that a leaving candidate has, however short its term is, if the store
// asks for a longer pause.
func TestRule11RetryAfterWhileLeaving(t *testing.T) {
	for name, leave := range map[string]func(*member){
		"resign": func(m *member) { _ = m.Resign(context.Background()) },
		"quit":   (*member).quit,
	} {
		for _, term := range []time.Duration{2 * S, 4 * S, 6 * S, T} {
			scene(t, fmt.Sprint(name, term), func(t *testing.T) {
				a := join(t, memory.NewDecider(), "a", polled, func(c *config) { c.TermLength = term })
				sleep(20 * T)
				a.store.Inject(asksForPause(50 * time.Second).On(memory.Write).Times(1))
				begin := time.Now()
				leave(a)
				near(t, "the release", time.Since(begin), term/4, S/2)
				if e := a.Leader(); !e.Vacant() {
					t.Errorf("not released: %+v", e)
				}
			})
		}
	}
}

// Rule 11: a pause that the store asks for.
func TestRule11RetryAfter(t *testing.T) {
	scenes{
		"kept by a standby to the end, and by a leader as far as its view allows": func(t *testing.T) {
			d, a := leader(t, polled)
			b := join(t, d, "b", polled)
			sleep(T)
			a.awaitExtension()
			const pause = 50 * time.Second
			a.store.Inject(asksForPause(pause))
			b.store.Inject(asksForPause(pause))
			cut := time.Now()
			sleep(10 * time.Minute)
			ops := b.opsSince(cut)
			if len(ops) < 4 {
				t.Fatalf("only %d requests of the standby", len(ops))
			}
			for i := range ops[1:] {
				if gap := ops[i+1].Start.Sub(ops[i].Start); gap < pause || gap > pause+2*S {
					t.Errorf("the standby has asked again after %v, want %v", gap, pause)
				}
			}
			r := a.leadership(t, 0)
			near(t, "the leader's view", r.done.Sub(cut), T-S, S)
			var tries []time.Time
			for _, op := range a.opsSince(cut) {
				if op.Start.Before(r.done) {
					tries = append(tries, op.Start)
				}
			}
			if len(tries) < 3 || len(tries) > 8 {
				t.Errorf("the leader has tried at %v", tries)
			} else if gap := tries[1].Sub(tries[0]); gap < 2*time.Second {
				t.Errorf("the leader has tried again after %v", gap)
			}
		},
		"for a minute at the most": func(t *testing.T) {
			_, a := leader(t, polled)
			a.store.Inject(asksForPause(24 * time.Hour).Times(20))
			sleep(time.Hour)
			a.leads(t)
		},
		"a short one, by a leader": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", polled)
			sleep(T)
			a.store.Inject(asksForPause(2 * time.Second).Times(1))
			a.awaitExtension()
			a.leads(t)
			ops := a.opsSince(time.Time{})
			for i, op := range ops[:len(ops)-1] {
				if gap := ops[i+1].Start.Sub(op.Start); op.Err != nil && gap != 2*time.Second {
					t.Errorf("the leader has tried again after %v", gap)
				}
			}
		},
		"over when a later write was taken": func(t *testing.T) {
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
		},
		"of an acquisition, about which it asks once": func(t *testing.T) {
			const pause = 50 * time.Second
			a := join(t, memory.NewDecider(), "a", faulty(asksForPause(pause).On(memory.Write)), polled)
			sleep(time.Hour)
			if n, most := len(a.opsSince(time.Time{})), 3*int(time.Hour/pause)+1; n > most {
				t.Errorf("%d requests, want at most %d", n, most)
			}
		},
		"by who has resigned, to the end": func(t *testing.T) {
			d := memory.NewDecider()
			a := join(t, d, "a", polled, func(c *config) { c.PollInterval = time.Second })
			sleep(20 * T)
			must(t, a.Resign(t.Context()))
			another := rival(a.Leader().ElectionNumber + 1)
			another.TermLength, another.TermExpiry = time.Hour, time.Now().Add(time.Hour)
			d.Replace(another)
			sleep(2500 * time.Millisecond)
			a.store.Inject(asksForPause(50 * time.Second))
			begin := time.Now()
			sleep(10 * time.Minute)
			apart(t, a.opsSince(begin), 50*time.Second)
		},
		"in the answer to a call that was given up": func(t *testing.T) {
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
		},
		"by a feed, and reads go on": func(t *testing.T) {
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
		},
	}.run(t)
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

// Rule 11: candidates that have not read anything yet ask no more often than standbys, whether the
// store refuses them or does not answer.
func TestRule11ColdStartInAnOutage(t *testing.T) {
	for name, fault := range map[string]memory.Faults{
		"refused": memory.Fail(errSlowDown),
		"hangs":   memory.Always(memory.Fault{AnswerDelay: 10 * time.Hour}),
	} {
		scene(t, name, func(t *testing.T) {
			a := join(t, memory.NewDecider(), "a", faulty(fault), polled)
			sleep(10 * time.Minute)
			if n, most := len(a.opsSince(time.Time{})), int(10*time.Minute/T)+3; n > most {
				t.Errorf("%d requests in ten minutes, want at most %d", n, most)
			}
		})
	}
}
