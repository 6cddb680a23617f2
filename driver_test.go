//go:build go1.25

package leaderelection

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// odd tokens: of a type that cannot be compared, and of one that may hold such a value.
type (
	bytesToken []byte
	anyToken   struct {
		revision int
		any
	}
)

func (bytesToken) CommitTS() time.Time { return time.Time{} }
func (anyToken) CommitTS() time.Time   { return time.Time{} }

// Tokens of every type can be compared, with one another and with none.
func TestSameVersion(t *testing.T) {
	for name, c := range map[string]struct {
		a, b LeaderToken
		want bool
	}{
		"none":             {nil, nil, true},
		"none and one":     {nil, version{of: "1"}, false},
		"one and none":     {bytesToken("1"), nil, false},
		"equal":            {version{of: "1"}, version{of: "1"}, true},
		"other":            {version{of: "1"}, version{of: "2"}, false},
		"two types":        {version{of: "1"}, bytesToken("1"), false},
		"slices":           {bytesToken("1"), bytesToken("1"), true},
		"other slices":     {bytesToken("1"), bytesToken("2"), false},
		"slices inside":    {anyToken{1, []int{1}}, anyToken{1, []int{1}}, true},
		"other inside":     {anyToken{1, []int{1}}, anyToken{1, []int{2}}, false},
		"two types inside": {anyToken{1, []int{1}}, anyToken{1, 1}, false},
		"a number inside":  {anyToken{1, 2}, anyToken{1, 2}, true},
		"another revision": {anyToken{1, []int{1}}, anyToken{2, []int{1}}, false},
	} {
		if got := sameVersion(c.a, c.b); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	var a, b LeaderToken = version{of: "1"}, version{of: "1"}
	if n := testing.AllocsPerRun(100, func() { sameVersion(a, b) }); n != 0 {
		t.Errorf("to compare two tokens allocates %v times", n)
	}
}

// during is a clock that does something while it is read.
type during struct {
	clocks.SystemClock
	do func()
}

func (d *during) Now() time.Time {
	now := time.Now()
	if do := d.do; do != nil {
		d.do = nil
		do()
	}
	return now
}

// liveView returns a campaign's view that ends in an hour, and the state with which an
// extension would move it on by another.
func liveView(clock clocks.Clock) (*TimeView, viewEnd) {
	k := newTimekeeper(clock)
	now := k.now()
	v := newView(k, 1)
	v.begin(viewEnd{wall: now.wall.Add(time.Hour), mono: now.mono + time.Hour})
	return v, viewEnd{wall: now.wall.Add(2 * time.Hour), mono: now.mono + 2*time.Hour}
}

// A view that is over, or is latched while an extension is being confirmed, does not
// come back to life.
func TestLatchAgainstMove(t *testing.T) {
	clock := &during{}
	v, next := liveView(clock)
	clock.do = v.end // between the look at the clock and the move
	if v.move(next) || v.ValueInFuture() || !v.latched() {
		t.Error("moved on though it was latched meanwhile")
	}

	// Its end has come, but nobody has looked yet.
	k := newTimekeeper(clock)
	now := k.now()
	v, next = liveView(clock)
	v.state.Store(&viewState{viewEnd: viewEnd{wall: now.wall.Add(-time.Second), mono: now.mono - time.Second}})
	if v.move(next) || v.ValueInFuture() {
		t.Error("moved on after its end")
	}
}

// However end and move meet, the view is over afterwards.
func TestLatchAgainstEnd(t *testing.T) {
	for range 20_000 {
		v, next := liveView(clocks.System())
		var both sync.WaitGroup
		start := make(chan struct{})
		both.Go(func() { <-start; v.move(next) })
		both.Go(func() { <-start; v.end() })
		close(start)
		both.Wait()
		if v.ValueInFuture() {
			t.Fatal("alive after its end")
		}
	}
}

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
