package sim

import (
	"math"
	"time"
)

// freeze is a stretch of true time in which all who run by a clock stand still.
type freeze struct {
	from, to  time.Duration // to is far away while it lasts
	suspended bool          // the monotonic clock stood still as well
	seen      time.Duration // true time of the last reading before it
	noticed   time.Duration // and of the first one after it
}

// step is that a clock was set, by so much.
type step struct {
	at, by time.Duration
}

// look notes a reading of those who run by the clock. With the lock.
func (c *Clock) look(at time.Duration) {
	c.looked = at
	for i := len(c.freezes) - 1; i >= 0 && c.freezes[i].noticed == math.MaxInt64 && c.freezes[i].to <= at; i-- {
		c.freezes[i].noticed = at
	}
}

// SetBack is by how much in all the clock was set back, after the true time from and
// not after to.
func (c *Clock) SetBack(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setBack(from, to)
}

func (c *Clock) setBack(from, to time.Duration) time.Duration {
	var sum time.Duration
	for _, s := range c.steps {
		if s.at > from && s.at <= to && s.by < 0 {
			sum -= s.by
		}
	}
	return sum
}

// Hidden is how much of the true time from from to to nobody who runs by the clock can
// know of: the monotonic clock stood still, and between the last reading before that and
// the first one after it the wall clock was set back.
func (c *Clock) Hidden(from, to time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum time.Duration
	for _, f := range c.freezes {
		if f.suspended && f.from <= to && f.to >= from {
			sum += min(min(f.to, to)-max(f.from, from), c.setBack(f.seen-1, min(f.noticed, to)))
		}
	}
	return sum
}

// reading is what a clock has shown to those who run by it.
type reading struct {
	wall time.Time
	mono time.Duration
}

// Latest is Both, but if the clock was set at this very moment, or while a freeze lasted that ends now, the wall
// time is the latest of those before and after: it is not known which of them a caller has seen.
func (c *Clock) Latest() (time.Time, time.Duration) {
	wall, mono := c.Both()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.True()
	for i := len(c.segments) - 1; i > 0 && (c.segments[i].from == at || c.segments[i].frozen); i-- {
		if w := c.epoch.Round(0).Add(c.wall(&c.segments[i-1], c.segments[i].from)); w.After(wall) {
			wall = w
		}
	}
	return wall, mono
}

// Disturbed is the true time of the last step, or of the end of the last freeze.
func (c *Clock) Disturbed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disturbed
}

// Stepped reports whether the clock was set after the true time from, and not after
// to.
func (c *Clock) Stepped(from, to time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.steps {
		if s.at > from && s.at <= to {
			return true
		}
	}
	return false
}

// Awake is when somebody who was to do something at the true time at could do it:
// at once, or where the clock was frozen just then, at the end of that.
func (c *Clock) Awake(at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.from <= at && at < f.to {
			return min(f.to, time.Since(c.epoch))
		}
	}
	return at
}

// Drowsy is when somebody who did something at the true time at may have looked at
// the clock for that: then, or where a freeze ended just then, when it began.
func (c *Clock) Drowsy(at time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.to == at {
			return f.from
		}
	}
	return at
}

// Shown is what the clock has lately shown to those who run by it, and what it
// shows now: what they do now may go by any of these.
func (c *Clock) Shown() []reading {
	wall, mono := c.Both()
	shown := []reading{{wall, mono}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range min(c.nextRead, len(c.readings)) {
		shown = append(shown, c.readings[i])
	}
	return shown
}

// Reached is the first true time in [from, to) at which the wall clock showed
// wall or later, or the monotonic clock mono or more, to those who run by it; to where
// there was none.
func (c *Clock) Reached(from, to time.Duration, wall time.Time, mono time.Duration) time.Duration {
	w := wall.Sub(c.epoch.Round(0))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.segments {
		s := &c.segments[i]
		a, b := max(from, s.from), to
		if i+1 < len(c.segments) {
			b = min(b, c.segments[i+1].from)
		}
		if a >= b || s.frozen {
			continue
		}
		over := func(at time.Duration) bool { return c.wall(s, at) >= w || s.monotonic(at) >= mono }
		if over(a) {
			return a
		}
		if !over(b - 1) {
			continue
		}
		lo, hi := a, b-1 // over(lo) is false, over(hi) is true
		for hi-lo > 1 {
			if mid := lo + (hi-lo)/2; over(mid) {
				hi = mid
			} else {
				lo = mid
			}
		}
		return hi
	}
	return to
}
