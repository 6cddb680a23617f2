// Package fakeclock is a clock that stands still until a test moves it: for tests of
// programs that elect a leader, when they cannot run in a testing/synctest bubble (they
// use sockets, other processes, or a test framework of their own). Inside a bubble the
// system's clock is all that a test needs.
//
// Give one [Clock] to the candidates, the observers and the store under test:
//
//	clock := fakeclock.New(time.Time{})
//	election := memory.New(&memory.Options{Clock: clock})
//	candidate := leaderelection.Config{Decider: election, Clock: clock, ...}
//
// A store that stamps its records by another clock proves that the candidates' is
// wrong, and they never lead. Transfer, StepDown and Reset go by the system clock: if a test calls
// them, begin with New(time.Now()). For clocks that are apart, wrap one in
// [github.com/c8e606e4/leaderelection/clocks.NewOffset].
//
// # Moving it
//
// [Clock.Advance] lets time pass: the wall time and the elapsed time, and whoever has
// slept long enough wakes. It does not wait for what they do then: that happens in
// their own goroutines. A candidate that wakes extends its lease, for which it asks the
// store; so let time pass in steps that are shorter than half a term, and wait in
// between for what the test is about (a callback, a channel), or until all sleep again
// ([Clock.AwaitSleepers]), or have it moved until something has ended ([Clock.AdvanceUntil]). One step past the end of a term is a process that was
// stopped for as long: its view is over.
//
// [Clock.Set] moves the wall time alone, as an administrator or a time service does.
package fakeclock

import (
	"context"
	"math"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Clock is a clock that a test moves. All its methods may be called by several
// goroutines at once. Make it with [New].
type Clock struct {
	mu       sync.Mutex
	wall     time.Time
	elapsed  time.Duration
	sleepers map[*sleeper]struct{}
	naps     uint64 // how often somebody has fallen asleep
}

// sleeper is somebody who sleeps.
type sleeper struct {
	elapsed time.Duration // wakes when this much has passed
	wall    time.Time     // or, when not zero, at this wall time
	woken   chan struct{}
}

var (
	_ clocks.Clock     = (*Clock)(nil)
	_ clocks.Monotonic = (*Clock)(nil)
)

// New returns a clock that shows start, or the beginning of the year 2000 when start
// is the zero time.
func New(start time.Time) *Clock {
	if start.IsZero() {
		start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return &Clock{wall: start.Round(0), sleepers: map[*sleeper]struct{}{}}
}

// Now is the wall time. It carries no monotonic reading; see Monotonic.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Until is how long it is until t by the wall clock.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// Monotonic is the time that Advance has let pass.
func (c *Clock) Monotonic() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsed
}

// Advance lets d pass, and wakes all whose time has come. It returns at once, with
// those awake but not yet done. A d that is not positive does nothing.
func (c *Clock) Advance(d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elapsed += d
	c.wall = c.wall.Add(d)
	c.wake()
}

// Set steps the wall clock to t, in either direction. No time passes: Monotonic stays,
// and only those who sleep until a wall time may wake.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = t.Round(0)
	c.wake()
}

// settled is for how long nobody may have fallen asleep anew before all counts as done.
// It is real time, since what is awake then waits for no clock: a candidate sleeps also
// while the store answers it, and wakes with the answer.
const settled = 5 * time.Millisecond

// AwaitSleepers returns nil when at least n sleep by this clock and, for a few
// milliseconds of real time, nobody has woken and fallen asleep again. From Go 1.26 on, it also
// waits until no goroutine of the process is at work, for about half a second at most. It returns
// context.Cause(ctx) as soon as ctx has ended. Call it before the first Advance, so that
// nobody falls asleep only after it, and between two to let what was woken do its work.
// A store's answer that comes over a network later than in those milliseconds is not waited for.
func (c *Clock) AwaitSleepers(ctx context.Context, n int) error {
	return c.atRest(ctx, nil, n, func() (enough bool) { return true })
}

// atRest calls do whenever at least n sleep, and all is still, until do returns true or done is closed. It
// returns context.Cause(ctx) as soon as ctx has ended.
func (c *Clock) atRest(ctx context.Context, done <-chan struct{}, n int, do func() (enough bool)) error {
	for tries := 0; ; tries++ {
		before := c.rest()
		select {
		case <-time.After(settled):
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		switch {
		case before.sleepers < n:
			tries = 0
		case c.still(before, tries):
			if tries = 0; do() {
				return nil
			}
		}
	}
}

// mostTries is how often a Clock looks whether all is still, before it takes the work of goroutines for
// something else than what it has woken.
const mostTries = 100

// still reports whether nobody has woken or fallen asleep since before, and no goroutine but the
// caller's is at work or could be. On a machine with other load, one that a step has woken may not
// have run for milliseconds. The runtime of Go 1.25 does not tell, and counts as idle.
func (c *Clock) still(before rest, tries int) bool {
	if now := c.rest(); now != before || tries >= mostTries {
		return now == before
	}
	work := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	metrics.Read(work)
	return work[0].Value.Kind() == metrics.KindBad || work[0].Value.Uint64() == 0 && work[1].Value.Uint64() <= 1
}

// rest is who sleeps, and how often somebody has fallen asleep so far.
type rest struct {
	sleepers int
	naps     uint64
}

func (c *Clock) rest() rest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rest{len(c.sleepers), c.naps}
}

// AdvanceUntil lets time pass, from the waking of one sleeper to that of the next, until done is
// closed, and returns nil; or context.Cause(ctx) as soon as ctx has ended. It is for what ends by
// itself, and needs time for it: a campaign that stops while its store is away tries to release
// its lease for a while, and nobody else moves the clock meanwhile:
//
//	cancel()
//	err := clock.AdvanceUntil(ctx, campaign.Done())
func (c *Clock) AdvanceUntil(ctx context.Context, done <-chan struct{}) error {
	return c.atRest(ctx, done, 1, func() (enough bool) {
		c.mu.Lock()
		next := time.Duration(math.MaxInt64)
		for s := range c.sleepers {
			next = min(next, c.left(s))
		}
		c.mu.Unlock()
		if next < math.MaxInt64 {
			c.Advance(max(next, 1))
		}
		return false
	})
}

// SleepFor returns true when Advance has let d pass, or false as soon as ctx has ended.
func (c *Clock) SleepFor(ctx context.Context, d time.Duration) bool {
	c.mu.Lock()
	s := &sleeper{elapsed: c.elapsed + d, woken: make(chan struct{})}
	return c.sleep(ctx, s)
}

// SleepUntil returns true when the wall clock shows t or later, because of Advance or of
// Set, or false as soon as ctx has ended.
func (c *Clock) SleepUntil(ctx context.Context, t time.Time) bool {
	c.mu.Lock()
	s := &sleeper{wall: t.Round(0), woken: make(chan struct{})}
	return c.sleep(ctx, s)
}

// sleep is with the lock, which it gives back.
func (c *Clock) sleep(ctx context.Context, s *sleeper) bool {
	if c.left(s) <= 0 || ctx.Err() != nil {
		c.mu.Unlock()
		return ctx.Err() == nil
	}
	c.sleepers[s] = struct{}{}
	c.naps++
	c.mu.Unlock()
	select {
	case <-s.woken:
		return ctx.Err() == nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.sleepers, s)
		return false
	}
}

// left is how long s still sleeps. With the lock.
func (c *Clock) left(s *sleeper) time.Duration {
	if !s.wall.IsZero() {
		return s.wall.Sub(c.wall)
	}
	return s.elapsed - c.elapsed
}

// wake wakes all whose time has come. With the lock.
func (c *Clock) wake() {
	for s := range c.sleepers {
		if c.left(s) <= 0 {
			delete(c.sleepers, s)
			close(s.woken)
		}
	}
}
