//go:build go1.25

package electiontest

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

// Rule 4, with a clock that tells of its jumps: a leader's ctx ends at once when the clock jumps past the end
// of the view.
func TestRule04JumpsAreTold(t *testing.T) {
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
