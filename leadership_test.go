//go:build go1.25

package leaderelection

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// leading returns a campaign without a loop that leads for a day.
func leading(cancel context.CancelCauseFunc) *Campaign {
	c := &Campaign{cfg: Config{Clock: clocks.System(), DrainTimeout: tT}, start: context.Background(), slice: maxSlice}
	c.timekeeper = newTimekeeper(c.cfg.Clock)
	view, now := newView(c.timekeeper, 1), c.now()
	view.begin(viewEnd{wall: now.wall.Add(24 * time.Hour), mono: now.mono + 24*time.Hour})
	c.view.Store(view)
	c.leadership = &leadership{c: c, number: 1, view: view, cancel: cancel, begun: make(chan struct{})}
	return c
}

// A leader that has lost its record has no view any more when its ctx ends.
func TestViewEndsBeforeCtx(t *testing.T) {
	told := false
	var c *Campaign
	c = leading(func(cause error) {
		if told = true; c.View().ValueInFuture() {
			t.Errorf("the ctx has ended by %q, and the view lives", cause)
		}
	})
	c.endLeadership(c.now(), ErrOusted)
	if !told {
		t.Error("the ctx goes on")
	}
}

// Rule 13: a process that is stopped between its look at the clock and its sleep does not sleep for longer than it was
// to from that look on.
func TestRule13LateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := leading(nil)
		defer c.mailbox.Close()
		begin := c.now()
		time.Sleep(900 * time.Millisecond)
		c.sleep(begin, time.Second)
		if slept := c.now().mono - begin.mono; slept != time.Second {
			t.Errorf("it has slept until %v after its look at the clock, want a second", slept)
		}
	})
}

// Rule 13: a leader notices within a second that its view was seen over, and within a minute if the system tells of
// jumps of its clock.
func TestRule13SleepsBySlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for slice, most := range map[time.Duration]time.Duration{maxSlice: time.Second, maxTellingSlice: time.Minute} {
			c := leading(nil)
			c.slice = slice
			begin := c.now()
			c.View().end()
			c.sleep(begin, 12*time.Hour)
			c.mailbox.Close()
			if slept := c.now().mono - begin.mono; slept > most {
				t.Errorf("it has slept for %v, want at most %v", slept, most)
			}
		}
	})
}

// A Leadership that Lead did not return has nothing to release.
func TestZeroLeadership(t *testing.T) {
	var l Leadership
	l.Release()
	l.Release()
}
