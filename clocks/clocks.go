// Package clocks is how an election tells the time, so that a test can tell it
// another.
//
// A lease compares the wall clocks of different machines, and it must survive
// one's own wall clock being set. So two readings matter, and they are not the
// same thing: the wall time, which other machines can be compared with and
// which an administrator or NTP may set back, and the monotonic time, which
// only measures how long something took and stands still while a machine is
// suspended. [time.Now] carries both in one value; a [Clock] whose Now does not
// can hand out the second one through [Monotonic].
package clocks

import (
	"context"
	"time"
)

// Clock is the time an election runs by. Its four methods are those of other
// clock libraries, whose clocks then fit as they are. All of them may be called
// by several goroutines at once.
type Clock interface {
	// Now is the current wall time. Where it carries a monotonic reading (as
	// time.Now's result does), elapsed time is taken from that.
	Now() time.Time
	// Until is how long it is until t: t.Sub(Now()).
	Until(t time.Time) time.Duration
	// SleepUntil returns true once Now has reached t, or false as soon as ctx
	// has ended.
	SleepUntil(ctx context.Context, t time.Time) bool
	// SleepFor returns true after d has passed, or false as soon as ctx has
	// ended.
	SleepFor(ctx context.Context, d time.Duration) bool
}

// Monotonic is what a Clock implements beyond the four methods when the times
// its Now returns carry no monotonic reading that can be trusted: a clock whose
// wall time can be set while the elapsed time runs on, above all in tests.
type Monotonic interface {
	// Monotonic is the time elapsed since some fixed moment. It never goes
	// back, and nobody sets it.
	Monotonic() time.Duration
}

// System is the machine's own clock, and what a nil Clock means in a Config.
// Inside a testing/synctest bubble it is the bubble's.
func System() Clock { return SystemClock{} }

// SystemClock is the type of [System]. Its zero value is ready for use.
type SystemClock struct{}

// Now is time.Now: wall and monotonic time in one value.
func (SystemClock) Now() time.Time { return time.Now() }

// Until is time.Until.
func (SystemClock) Until(t time.Time) time.Duration { return time.Until(t) }

// SleepUntil sleeps until t, by the monotonic clock where t carries a reading
// of it.
func (c SystemClock) SleepUntil(ctx context.Context, t time.Time) bool {
	return c.SleepFor(ctx, time.Until(t))
}

// SleepFor sleeps for d.
func (SystemClock) SleepFor(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
