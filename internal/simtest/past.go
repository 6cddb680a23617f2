package simtest

import "time"

// freeze is a stretch of true time in which all who run by a clock stand still.
type freeze struct {
	from, to  time.Duration // to is far away while it lasts
	suspended bool          // the monotonic clock stood still as well
}

// reading is what a clock has shown to those who run by it.
type reading struct {
	wall time.Time
	mono time.Duration
}

// Latest is Both, but where the clock was set at this very moment, the wall time
// is the later of those before and after: it is not known which of them a caller
// has seen.
func (c *Clock) Latest() (time.Time, time.Duration) {
	wall, mono := c.Both()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.True()
	for i := len(c.segments) - 1; i > 0 && c.segments[i].from == at; i-- {
		if w := c.epoch.Round(0).Add(c.wall(&c.segments[i-1], at)); w.After(wall) {
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

// Stepped says whether the clock was set after the true time from, and not after
// to.
func (c *Clock) Stepped(from, to time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.steps {
		if at > from && at <= to {
			return true
		}
	}
	return false
}

// Suspended says whether the monotonic clock stood still at some moment from from
// to to.
func (c *Clock) Suspended(from, to time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.freezes {
		if f.suspended && f.from <= to && f.to >= from {
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
// wall or later, or the monotonic clock mono or more; to where there was none.
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
		if a >= b {
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
