//go:build go1.25

package rules

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		a := join(t, memory.NewDecider(), "a", on(clock), stayOn)
		sleep(time.Second)
		r := a.leadership(t, 0)
		clock.ahead.Store(int64(time.Hour))
		sleep(time.Second)
		if r.ctx.Err() == nil {
			t.Error("the leader's ctx lives a second after the view has ended")
		}
	})
}
