package clocks

import (
	"context"
	"sync/atomic"
	"time"
)

// Offset is a Clock whose wall time is another's, plus an offset that can be
// changed at any moment, as when somebody sets a machine's clock. Its elapsed
// time is the other's and does not notice. It is for tests of skew: give each
// candidate one of its own. Safe for concurrent use.
type Offset struct {
	inner  Clock
	offset atomic.Int64
	origin time.Time
}

var (
	_ Clock     = (*Offset)(nil)
	_ Monotonic = (*Offset)(nil)
)

// NewOffset returns a clock that is ahead of inner by offset (behind it, where
// that is negative). A nil inner is the system's clock.
func NewOffset(inner Clock, offset time.Duration) *Offset {
	if inner == nil {
		inner = System()
	}
	o := &Offset{inner: inner, origin: inner.Now()}
	o.offset.Store(int64(offset))
	return o
}

// Set steps the wall clock so that it is ahead of the inner one by offset from
// now on. Monotonic is not moved, and sleeps by duration in progress go on.
func (o *Offset) Set(offset time.Duration) { o.offset.Store(int64(offset)) }

// Offset is how far the clock is ahead of the inner one.
func (o *Offset) Offset() time.Duration { return time.Duration(o.offset.Load()) }

// Now is the inner clock's wall time plus the offset. It carries no monotonic
// reading, since that would be moved along by a Set; see Monotonic.
func (o *Offset) Now() time.Time { return o.inner.Now().Round(0).Add(o.Offset()) }

// Until is how long it is until t by this clock.
func (o *Offset) Until(t time.Time) time.Duration { return t.Sub(o.Now()) }

// Monotonic is the inner clock's elapsed time.
func (o *Offset) Monotonic() time.Duration {
	if m, ok := o.inner.(Monotonic); ok {
		return m.Monotonic()
	}
	return o.inner.Now().Sub(o.origin)
}

// SleepUntil sleeps until this clock has reached t; a Set during the sleep is
// noticed within a second.
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
