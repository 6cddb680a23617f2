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
	"errors"
	"fmt"
	"math"
	"sync/atomic"
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

// Bounded reports how far a clock can be from true time. A [Clock] implements it if it knows. If
// the bound is more than MaxClockSkew, the candidate neither campaigns nor leads.
type Bounded interface {
	// ErrorBound returns how far the clock is off at most, in either direction. It returns
	// Unbounded if nothing keeps the clock right. An error means that the bound is not
	// known, which speaks neither for nor against the clock. ErrorBound is called often and
	// by several goroutines, and must return at once.
	ErrorBound() (time.Duration, error)
}

// Unbounded is the ErrorBound of a clock that nothing keeps right.
const Unbounded = time.Duration(math.MaxInt64)

// Kernel returns the machine's own clock, with the bound that the kernel keeps for its error
// (maxerror in adjtimex(2)). Use it as Config.Clock so that a candidate whose machine has lost
// its time service compares no clocks: it lets others lead first, and marks its record Unsynchronized.
//
// The NTP client sets the bound after each poll, to its distance from the reference. The kernel
// adds 500 µs for every second since. If no NTP client sets the bound, it is Unbounded, and a
// candidate with this clock never compares it. chrony sets it with "rtcsync"; systemd-timesyncd and
// ntpd always do. systemd-timesyncd sets 0. With it, the bound is only what the kernel has
// added since the last poll, not the real error.
//
// This needs Linux and permission: some containers' seccomp profiles refuse adjtimex. Otherwise
// ErrorBound returns an error, and the clock counts as [System]. Inside testing/synctest the
// time is the bubble's, but the bound is the real kernel's.
func Kernel() Clock { return KernelClock{} }

// KernelClock is the type of [Kernel]. Its zero value is ready for use.
type KernelClock struct{ SystemClock }

// ErrorBound implements [Bounded]. It makes one system call, of about a microsecond.
func (KernelClock) ErrorBound() (time.Duration, error) { return kernelBound() }

// JumpNotifier reports when wall time and elapsed time have moved apart. A [Clock] implements it
// if it can tell that as soon as it happens. Somebody has then set the clock, or the machine was
// suspended, so that the elapsed time stood still. No timer notices either.
//
// If a leader's clock is a JumpNotifier, the leader sleeps until something is due. With any
// other clock it wakes every second to look. [System] and [Kernel] do not have this method; see
// [NotifyJump]. So a clock that embeds one of them, with another Now, does not get the
// method by accident.
type JumpNotifier interface {
	// NotifyJump arranges that f is called soon after each jump, until stop is called. Soon
	// means within milliseconds of the setting, or of the resume. f may be called without a
	// jump, and once more while stop is called. It must return at once. Calls of f do not
	// overlap. A clock that is slewed, to run a little faster or slower for a while, does
	// not jump.
	//
	// An error means that this clock cannot tell. Then f is never called, and stop is nil.
	NotifyJump(f func()) (stop func(), err error)
}

// NotifyJump arranges that f is called when clock jumps, as [JumpNotifier] says. If clock cannot
// tell, NotifyJump returns an error and a nil stop.
//
// The system's clock can tell on Linux. Inside a testing/synctest bubble it can everywhere, but
// never calls f: a bubble's clock does not jump. All callers for the system's clock share one
// file descriptor and one goroutine, which exist only while there are callers.
func NotifyJump(clock Clock, f func()) (stop func(), err error) {
	switch c := clock.(type) {
	case nil, SystemClock, KernelClock:
		if now := time.Now(); now == now.Round(0) {
			return func() {}, nil // a bubble: nothing in it may wait for an event from outside
		}
		return systemJumps.add(f)
	case JumpNotifier:
		return c.NotifyJump(f)
	}
	return nil, fmt.Errorf("clocks: a %T does not tell of its jumps: %w", clock, errors.ErrUnsupported)
}

// Offset is a Clock that adds an offset to the wall time of another clock. Use it in tests of
// skew: give each candidate its own. The offset can be changed at any moment, as when somebody
// sets a machine's clock. The elapsed time is the other clock's, and does not change then. Safe
// for concurrent use.
type Offset struct {
	inner  Clock
	offset atomic.Int64
	origin time.Time
}

var (
	_ Clock     = (*Offset)(nil)
	_ Monotonic = (*Offset)(nil)
)

// NewOffset returns a clock that is ahead of inner by offset, or behind it if offset is negative.
// A nil inner means the system's clock.
func NewOffset(inner Clock, offset time.Duration) *Offset {
	if inner == nil {
		inner = System()
	}
	o := &Offset{inner: inner, origin: inner.Now()}
	o.offset.Store(int64(offset))
	return o
}

// Set steps the wall clock. From now on it is ahead of the inner clock by offset. Monotonic does
// not change, and a SleepFor in progress goes on.
func (o *Offset) Set(offset time.Duration) { o.offset.Store(int64(offset)) }

// Offset returns how far the clock is ahead of the inner clock.
func (o *Offset) Offset() time.Duration { return time.Duration(o.offset.Load()) }

// Now returns the inner clock's wall time plus the offset. It carries no monotonic reading,
// since Set would move that along; see Monotonic.
func (o *Offset) Now() time.Time { return o.inner.Now().Round(0).Add(o.Offset()) }

// Until returns the time from now until t, by this clock.
func (o *Offset) Until(t time.Time) time.Duration { return t.Sub(o.Now()) }

// Monotonic returns the inner clock's elapsed time.
func (o *Offset) Monotonic() time.Duration {
	if m, ok := o.inner.(Monotonic); ok {
		return m.Monotonic()
	}
	return o.inner.Now().Sub(o.origin)
}

// SleepUntil sleeps until this clock has reached t. It notices a Set during the sleep within a
// second.
func (o *Offset) SleepUntil(ctx context.Context, t time.Time) bool {
	for {
		d := o.Until(t)
		if d <= 0 {
			return ctx.Err() == nil
		}
		if !o.inner.SleepFor(ctx, min(d, time.Second)) {
			return false
		}
	}
}

// SleepFor sleeps for d by the inner clock.
func (o *Offset) SleepFor(ctx context.Context, d time.Duration) bool {
	return o.inner.SleepFor(ctx, d)
}
