package clocks

import (
	"context"
	"sync/atomic"
	"time"
)

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
