package sim

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Clock is one machine's clock in a simulation. True time is the bubble's; the
// wall time is true time plus an offset that drifts and can be stepped, and is
// kept within a bound however it drifts; the monotonic time is never stepped,
// runs a little too fast or too slow, and stands still while the machine is
// suspended. A frozen clock also freezes those who sleep by it, as a stopped
// process or a suspended machine is: not even the end of their ctx wakes them.
//
// It remembers all that was done to it, so that what it would have shown at an
// earlier moment can still be asked.
type Clock struct {
	epoch time.Time // true time 0
	bound time.Duration

	mu        sync.Mutex
	segments  []segment     // the last one is in force
	frozen    chan struct{} // closed when the freeze ends; nil while running
	changed   chan struct{} // closed at the next freeze
	disturbed time.Duration // true time of the last step, or of the end of the last freeze
	steps     []step
	looked    time.Duration // true time of the last reading of those who run by it
	freezes   []freeze
	readings  [16]reading // the last ones of those who run by it
	nextRead  int

	busyAt time.Duration // to notice a loop that spins: readings at this moment
	busy   int
	spun   func() // told of a loop that spins
	slow   bool   // it does: nobody sleeps for less than a second from now on, so that the simulation comes to its end

	outsiders int    // looking at the time by this clock, without being ambushed
	ambush    func() // called once, after the next reading
}

// segment is a stretch of true time in which a clock is left alone.
type segment struct {
	from   time.Duration
	offset time.Duration // of the wall clock, at from
	rate   float64       // what it gains a second
	mono   time.Duration // at from
	pace   float64       // of the monotonic clock; 0 while suspended
	frozen bool          // nobody can look at it
}

var (
	_ clocks.Clock     = (*Clock)(nil)
	_ clocks.Monotonic = (*Clock)(nil)
)

// NewClock returns a clock whose wall time starts at true time plus offset and
// gains rate seconds each second, but is never further from true time than bound
// (step beyond it with [Clock.Step]). Its monotonic time runs at pace.
func NewClock(epoch time.Time, bound, offset time.Duration, rate, pace float64) *Clock {
	return &Clock{
		epoch:    epoch,
		bound:    bound,
		segments: []segment{{from: time.Since(epoch), offset: offset, rate: rate, pace: pace}},
		changed:  make(chan struct{}),
	}
}

// wall is the wall time, as true time plus offset, at the true time at.
func (c *Clock) wall(s *segment, at time.Duration) time.Duration {
	off := s.offset + time.Duration(float64(at-s.from)*s.rate)
	if b := max(c.bound, s.offset, -s.offset); off > b {
		off = b
	} else if off < -b {
		off = -b
	}
	return at + off
}

func (s *segment) monotonic(at time.Duration) time.Duration {
	return s.mono + time.Duration(float64(at-s.from)*s.pace)
}

// True is the true time now.
func (c *Clock) True() time.Duration { return time.Since(c.epoch) }

func (c *Clock) last() *segment { return &c.segments[len(c.segments)-1] }

// Now is the wall time. It carries no monotonic reading.
func (c *Clock) Now() time.Time {
	at := c.True()
	c.mu.Lock()
	c.reading(at)
	now := c.epoch.Round(0).Add(c.wall(c.last(), at))
	var ambush func()
	if c.outsiders == 0 {
		ambush, c.ambush = c.ambush, nil
		c.readings[c.nextRead%len(c.readings)] = reading{now, c.last().monotonic(at)}
		c.nextRead++
		c.look(at)
	}
	c.mu.Unlock()
	if ambush != nil {
		ambush()
		c.Gate()
	}
	return now
}

// Ambush has f called after the next reading of the clock by those who run by it,
// before they learn what it showed.
func (c *Clock) Ambush(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ambush = f
}

// Outside lets f look at the clock without being ambushed.
func (c *Clock) Outside(f func()) {
	c.mu.Lock()
	c.outsiders++
	c.mu.Unlock()
	f()
	c.mu.Lock()
	c.outsiders--
	c.mu.Unlock()
}

// Monotonic is the elapsed time.
func (c *Clock) Monotonic() time.Duration {
	at := c.True()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last().monotonic(at)
}

// Both is Now and Monotonic, as an outsider sees them: it does not count as a
// reading of the process that runs by the clock.
func (c *Clock) Both() (time.Time, time.Duration) {
	at := c.True()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch.Round(0).Add(c.wall(c.last(), at)), c.last().monotonic(at)
}

// maxReadings is how often a clock may be read at one moment of virtual time:
// far more often than answers can arrive in it, and far less than a loop that
// does not sleep reads it.
const maxReadings = 3000

// reading counts the readings at one moment, and lets a loop that spins be known.
func (c *Clock) reading(at time.Duration) {
	if at != c.busyAt {
		c.busyAt, c.busy = at, 0
	}
	if c.busy++; c.busy == maxReadings && !c.slow && c.spun != nil {
		c.slow = true
		c.spun()
	}
}

// Until is how long it is until t by the wall clock.
func (c *Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// SleepUntil sleeps until the wall clock has reached t.
func (c *Clock) SleepUntil(ctx context.Context, t time.Time) bool {
	for {
		d := c.Until(t)
		if d <= 0 {
			return ctx.Err() == nil
		}
		if !c.SleepFor(ctx, min(d, time.Second)) {
			return false
		}
	}
}

// SleepFor sleeps for d by the monotonic clock.
func (c *Clock) SleepFor(ctx context.Context, d time.Duration) bool {
	until := c.Monotonic() + d
	for {
		c.mu.Lock()
		s, frozen, changed := *c.last(), c.frozen, c.changed
		slow := c.slow
		c.mu.Unlock()
		if frozen != nil {
			<-frozen
			continue
		}
		if ctx.Err() != nil {
			return false
		}
		left := until - s.monotonic(c.True())
		if slow && d < time.Second {
			d, until = time.Second, c.Monotonic()+time.Second
			left = time.Second
		}
		if left <= 0 {
			return true
		}
		timer := time.NewTimer(time.Duration(math.Ceil(float64(left)/s.pace)) + 1)
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-changed:
		}
		timer.Stop()
	}
}

// Step sets the wall clock to true time plus offset.
func (c *Clock) Step(offset time.Duration) {
	var by time.Duration
	c.change(func(s *segment) { s.offset, by = offset, offset-s.offset })
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, step{c.disturbed, by})
}

// Restore sets the wall clock back within its bound, where it is beyond.
func (c *Clock) Restore() {
	wall, _ := c.Both()
	if off := wall.Sub(c.epoch.Round(0)) - c.True(); off > c.bound || off < -c.bound {
		c.Step(min(max(off, -c.bound), c.bound))
	}
}

// change begins a new segment.
func (c *Clock) change(f func(*segment)) {
	at := c.True()
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.last()
	next := segment{from: at, offset: c.wall(old, at) - at, rate: old.rate, mono: old.monotonic(at), pace: old.pace, frozen: old.frozen}
	f(&next)
	c.segments = append(c.segments, next)
	c.disturbed = at
}

// Freeze stops all who sleep by this clock until the function that it returns is
// called. With suspend the monotonic clock stands still meanwhile.
func (c *Clock) Freeze(suspend bool) (thaw func()) {
	var pace float64
	c.change(func(s *segment) {
		pace, s.frozen = s.pace, true
		if suspend {
			s.pace = 0
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	frozen := make(chan struct{})
	c.frozen = frozen
	c.freezes = append(c.freezes, freeze{from: c.disturbed, to: math.MaxInt64, suspended: suspend, seen: c.looked, noticed: math.MaxInt64})
	close(c.changed)
	return func() {
		c.change(func(s *segment) { s.pace, s.frozen = pace, false })
		c.mu.Lock()
		defer c.mu.Unlock()
		c.frozen, c.changed = nil, make(chan struct{})
		c.freezes[len(c.freezes)-1].to = c.disturbed
		close(frozen)
	}
}

// Gate returns when the clock is not frozen.
func (c *Clock) Gate() {
	for {
		c.mu.Lock()
		frozen := c.frozen
		c.mu.Unlock()
		if frozen == nil {
			return
		}
		<-frozen
	}
}

// Frozen reports whether the clock is frozen.
func (c *Clock) Frozen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frozen != nil
}

// carrying is a Clock whose Now carries a monotonic reading, as the system's does,
// and which has no Monotonic. Its Clock is neither stepped nor suspended, nor does
// it drift.
type carrying struct{ c *Clock }

var _ clocks.Clock = carrying{}

func (k carrying) Now() time.Time {
	now := time.Now()
	return now.Add(k.c.Now().Sub(now.Round(0)))
}

func (k carrying) Until(t time.Time) time.Duration { return t.Sub(k.Now()) }
func (k carrying) SleepUntil(ctx context.Context, t time.Time) bool {
	return k.c.SleepUntil(ctx, t.Round(0))
}
func (k carrying) SleepFor(ctx context.Context, d time.Duration) bool { return k.c.SleepFor(ctx, d) }

// boundedClock is a Clock that knows how far it may be off.
type boundedClock struct {
	*Clock
	h *host
}

var _ clocks.Bounded = boundedClock{}

// errNoBound is what a clock says that cannot tell.
var errNoBound = errors.New("sim: adjtimex: operation not permitted")

// ErrorBound is what the host says of its clock.
func (b boundedClock) ErrorBound() (time.Duration, error) {
	b.h.w.rec.mu.Lock()
	defer b.h.w.rec.mu.Unlock()
	return b.h.says, b.h.saysNot
}

// doubt has the host's clock say something else of itself: that it is well, that it is
// off by more than anybody's MaxClockSkew, or that it cannot tell.
func (h *host) doubt(well bool) {
	if !h.bounded {
		return
	}
	w := h.w
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	h.says, h.saysNot = w.Skew/2, nil
	n := 0
	if !well {
		n = w.rng.IntN(5)
	}
	switch n {
	case 1:
		h.saysNot = errNoBound
	case 2:
		h.says = clocks.Unbounded
	case 3, 4:
		h.says = w.mostSkew() + w.between(1, w.Term)
	}
	if h.badSince != 0 {
		h.badUntil = w.now()
	}
	switch bad := h.saysNot == nil && h.says > w.mostSkew(); {
	case !bad:
		h.badSince = 0
	case h.badSince == 0:
		h.badSince, h.wasBad = max(w.now(), 1), true
		w.rec.counts["clocks that said that they were off"]++
	}
	w.rec.logf(h.id, "its clock says of itself: %v, %v", h.says, h.saysNot)
}

// owns: a leader whose clock says that it is off by more than MaxClockSkew leads for a
// quarter of a term more at most, after which it is asked. With the lock.
func (r *recorder) owns(g *leadership) {
	h, now := g.p.host, r.now()
	if h.badSince == 0 || g.p.measures(g.number) {
		return
	}
	since := max(h.badSince, h.clock.Disturbed())
	if limit := g.p.term/4 + time.Second; now-since > limit {
		r.failf(g.p.name, "leads though its clock has said for %v that it is off by %v", now-since, h.says)
	}
}
