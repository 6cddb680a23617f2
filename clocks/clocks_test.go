//go:build go1.25

package clocks_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Every clock sleeps as it says, and stops as soon as ctx ends.
func TestSleeping(t *testing.T) {
	for name, clock := range map[string]func() clocks.Clock{
		"system": clocks.System,
		"offset": func() clocks.Clock { return clocks.NewOffset(nil, -time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clock()
				begin := time.Now()
				if !c.SleepFor(t.Context(), time.Minute) || time.Since(begin) != time.Minute {
					t.Errorf("SleepFor took %v", time.Since(begin))
				}
				if !c.SleepUntil(t.Context(), c.Now().Add(time.Minute)) || time.Since(begin) != 2*time.Minute {
					t.Errorf("SleepUntil took %v", time.Since(begin)-time.Minute)
				}
				if !c.SleepFor(t.Context(), -1) || !c.SleepUntil(t.Context(), c.Now()) || time.Since(begin) != 2*time.Minute {
					t.Error("slept for what is past")
				}
				if got := c.Until(c.Now().Add(time.Second)); got != time.Second {
					t.Errorf("Until a second from now is %v", got)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if c.SleepFor(ctx, time.Hour) || time.Since(begin) != 2*time.Minute+time.Second {
					t.Error("SleepFor did not end with its ctx")
				}
				if c.SleepUntil(ctx, c.Now().Add(time.Hour)) || c.SleepFor(ctx, 0) {
					t.Error("slept under a ctx that has ended")
				}
			})
		})
	}
}

// Set steps the wall time, and leaves the elapsed time alone; a sleep until a
// wall time notices.
func TestOffsetSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := clocks.NewOffset(nil, time.Minute)
		c := clocks.NewOffset(inner, time.Hour)
		wall, elapsed := c.Now(), c.Monotonic()
		if got := time.Until(wall); got != time.Hour+time.Minute {
			t.Fatalf("ahead by %v", got)
		}
		var woke atomic.Bool
		go func() {
			c.SleepUntil(t.Context(), wall.Add(time.Hour))
			woke.Store(true)
		}()
		time.Sleep(10 * time.Second)
		c.Set(2 * time.Hour)
		if c.Offset() != 2*time.Hour || c.Monotonic()-elapsed != 10*time.Second {
			t.Fatalf("offset %v, elapsed %v", c.Offset(), c.Monotonic()-elapsed)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !woke.Load() {
			t.Fatal("SleepUntil did not notice that the clock was set")
		}
	})
}

// Outside of a bubble, where time.Now carries a monotonic reading: an Offset's Now has
// none, which Set would move along, and Monotonic does not notice a Set, with or
// without a Monotonic below it.
func TestOffsetCarriesNoMonotonicReading(t *testing.T) {
	if now := time.Now(); now == now.Round(0) {
		t.Fatal("time.Now has no monotonic reading here: this test cannot fail")
	}
	for name, inner := range map[string]clocks.Clock{"system": nil, "kernel": clocks.Kernel(), "offset": clocks.NewOffset(nil, time.Minute)} {
		c := clocks.NewOffset(inner, time.Hour)
		if now := c.Now(); now != now.Round(0) {
			t.Errorf("%s: %v carries a monotonic reading", name, now)
		}
		at := time.Now()
		before := c.Monotonic()
		c.Set(-24 * time.Hour)
		if took := c.Monotonic() - before; took < 0 || took > time.Since(at) {
			t.Errorf("%s: Set moved the elapsed time by %v", name, took)
		}
		if off := time.Until(c.Now()); off > -23*time.Hour || off < -25*time.Hour {
			t.Errorf("%s: set back by a day, it is off by %v", name, off)
		}
	}
}

// The system's clocks carry one: the end of a view is measured by it.
func TestSystemCarriesAMonotonicReading(t *testing.T) {
	for name, c := range map[string]clocks.Clock{"system": clocks.System(), "kernel": clocks.Kernel()} {
		if now := c.Now(); now == now.Round(0) {
			t.Errorf("%s: %v carries no monotonic reading", name, now)
		}
	}
}

func ExampleOffset() {
	clock := clocks.NewOffset(clocks.System(), 0)
	before, elapsed := clock.Now(), clock.Monotonic()
	clock.Set(-time.Hour) // as when an administrator sets it back
	fmt.Println("wall time went back:", clock.Now().Before(before))
	fmt.Println("elapsed time went back:", clock.Monotonic() < elapsed)
	// Output:
	// wall time went back: true
	// elapsed time went back: false
}

// Inside a bubble no clock jumps, and nothing is to wait for what comes from outside of it.
func TestNoJumpsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []clocks.Clock{clocks.System(), clocks.Kernel()} {
			stop, err := clocks.NotifyJump(c, func() { t.Error("called") })
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			synctest.Wait() // the bubble has to end, too
			stop()
			stop()
		}
	})
}

// A clock that says nothing about its jumps is looked at: one that tests move, and one that
// is built around the system's, whose jumps are not its own.
func TestTellsOfNoJumps(t *testing.T) {
	for _, c := range []clocks.Clock{clocks.NewOffset(nil, 0), struct{ clocks.SystemClock }{}, struct{ clocks.KernelClock }{}} {
		if stop, err := clocks.NotifyJump(c, func() { t.Error("called") }); err == nil || stop != nil {
			t.Errorf("%T tells of jumps", c)
		}
	}
}
