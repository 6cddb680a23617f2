//go:build go1.25

package rules

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// telling is a clock that tells of its jumps, and counts how often it is read.
type telling struct {
	*clocks.Offset
	mu    sync.Mutex
	f     func()
	reads int
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

func (c *telling) look() (reads int, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads, c.f
}

func (c *telling) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	return c.Offset.Now()
}

// Rule 13, with a clock that tells of its jumps: a leader's ctx ends at once when the clock jumps past the end
// of the view.
func TestRule13JumpsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &telling{Offset: clocks.NewOffset(nil, 0)}
		elected := make(chan context.Context, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := leaderelection.Config{
			Decider: memory.New(nil), LeaderID: "a", TermLength: 10 * time.Minute, ClockPolicy: leaderelection.SharedClock, Clock: clock,
			OnElected: func(ctx context.Context, _ *leaderelection.TimeView) { elected <- ctx },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		leader := <-elected
		synctest.Wait()
		_, jumped := clock.look()
		time.Sleep(4*time.Minute + time.Second/2)
		synctest.Wait()
		clock.Set(time.Hour)
		jumped()
		synctest.Wait()
		if leader.Err() == nil {
			t.Error("the clock has jumped past the end of the view, and the leader's ctx goes on")
		}
		cancel()
		_ = c.Wait() // it was cancelled
		if _, f := clock.look(); f != nil {
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
