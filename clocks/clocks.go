// Package clocks has the clocks by which an election runs, so that a test can use another.
//
// A lease compares the wall clocks of different machines. It must also survive a change of its
// own machine's wall clock. So two readings matter:
//
//   - The wall time can be compared with other machines. An administrator or NTP may set it
//     back.
//   - The monotonic time only measures how long something took. It stands still while a
//     machine is suspended.
//
// [time.Now] carries both in one value. If the Now of a [Clock] does not, the clock can
// provide the monotonic time through [Monotonic].
package clocks

import (
	"context"
	"time"
)

// Clock tells an election the time. Implement it to run an election by another clock than the
// machine's. Other clock libraries have the same four methods, so their clocks fit as they
// are. All methods may be called by several goroutines at once.
type Clock interface {
	// Now returns the current wall time. If it carries a monotonic reading, as the result of
	// time.Now does, elapsed time is measured by that reading.
	Now() time.Time
	// Until returns the time from now until t: t.Sub(Now()).
	Until(t time.Time) time.Duration
	// SleepUntil returns true once Now has reached t, or false as soon as ctx has ended.
	SleepUntil(ctx context.Context, t time.Time) bool
	// SleepFor returns true after d has passed, or false as soon as ctx has ended.
	SleepFor(ctx context.Context, d time.Duration) bool
}

// Monotonic provides elapsed time. A [Clock] implements it if the times that its Now returns
// carry no monotonic reading that can be trusted. Such a clock's wall time can be set while the
// elapsed time runs on, above all in tests.
type Monotonic interface {
	// Monotonic returns the time since some fixed moment. It never goes back, and nobody
	// sets it.
	Monotonic() time.Duration
}

// System returns the machine's own clock. A nil Clock in a Config means this clock. Inside a
// testing/synctest bubble it is the bubble's clock.
func System() Clock { return SystemClock{} }

// SystemClock is the type of [System]. Its zero value is ready for use.
type SystemClock struct{}

// Now returns time.Now(): wall and monotonic time in one value.
func (SystemClock) Now() time.Time { return time.Now() }

// Until returns time.Until(t).
func (SystemClock) Until(t time.Time) time.Duration { return time.Until(t) }

// SleepUntil sleeps until t. If t carries a monotonic reading, it goes by the monotonic clock.
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
