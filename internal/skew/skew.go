// Package skew finds out whether a machine's wall clock is off by more than was
// promised, from what it reads beside the time stamps of a store. It knows nothing of
// elections.
//
// A store's stamp of a write was made while the request was out: after the wall time at
// which it began, and before the one at which its answer was here. So own time less the
// store's time, at the stamp, lies within
//
//	[begin - stamp, answer - stamp]
//
// and the clock is proved to be ahead if the lower end is above the bound, and behind if
// the upper end is below minus the bound. Of what another wrote only the second is
// known, and it proves nothing: the store's clock may have been wrong at that time, and
// right since. It is a doubt, which the stamp of this machine's next write decides. The
// store's clock is taken for the true one at the time of that write.
package skew

import "time"

// Reading is one look at a machine's clock: the wall time, and the time by a monotonic
// clock since any moment.
type Reading struct {
	Wall time.Time
	Mono time.Duration
}

// Fault is how a clock is proved to be wrong.
type Fault struct {
	Offset time.Duration // how far it is ahead of true time, at least; negative: behind
	Own    bool          // Offset is the clock's own bound for its error, in either direction
}

// Check is what is known of one clock's error. It is not safe for concurrent use.
type Check struct {
	bound  time.Duration
	memory time.Duration
	epoch  time.Time

	ahead, behind proof // by this machine's writes
	doubt         proof // behind, by what others wrote
	own           time.Duration
}

// New returns a Check of a clock that shows about epoch now, and should be within bound
// of true time. A proof counts for as long as memory, unless it is disproved.
func New(bound, memory time.Duration, epoch time.Time) Check {
	return Check{bound: bound, memory: memory, epoch: epoch.Round(0)}
}

// proof is evidence that the clock is off. It grows old: a clock that was slewed
// back into its bounds shows no step.
type proof struct {
	offset time.Duration // at least, away from zero
	step   time.Duration // wall less monotonic time, then
	at     time.Duration // by monotonic time
	until  time.Duration // it counts
}

// MaxDrift is how fast the two clocks of one machine run apart, at most: what a kernel
// slews a clock by for a time service (MAXFREQ in RFC 5905, appendix A).
const MaxDrift = 500e-6

// maxAge is how far a stamp may be from now: what is further was not made by any
// clock. (A machine that begins in 1970 is 60 years behind.)
const maxAge = 100 * 365 * 24 * time.Hour

// usable reports whether a clock that shows wall can be compared with stamp.
func usable(stamp, wall time.Time) bool {
	return !stamp.IsZero() && wall.Sub(stamp).Abs() <= maxAge
}

// Observe compares the clock with a store's stamp of what is here now, and if it came
// from a write of one's own, with when that began (else nil).
func (c *Check) Observe(stamp time.Time, begun *Reading, now Reading) {
	if !usable(stamp, now.Wall) {
		return
	}
	unit := precision(stamp)
	highest := now.Wall.Sub(stamp) + unit
	switch shown := c.prove(highest, now, now); {
	case highest >= -c.bound:
	case begun == nil:
		c.doubt = shown
	default:
		c.behind = shown
	}
	if highest < c.Ahead(now, 0) { // it was slewed back
		c.ahead.offset, c.ahead.step, c.ahead.at = highest, c.stepped(now), now.Mono
	}
	if begun == nil {
		return
	}
	switch lowest := begun.Wall.Sub(stamp) - unit; {
	case lowest > c.bound:
		c.ahead = c.prove(max(lowest, c.Ahead(*begun, 0)), *begun, now) // a slow write shows less than a quick one
	case lowest+min(c.stepped(now)-c.stepped(*begun), 0) >= -c.bound: // nor was it set back since
		c.behind, c.doubt = proof{}, proof{}
	case highest >= -c.bound && c.Doubted(now): // too slow to disprove it
		c.behind = c.doubt
		c.behind.until = now.Mono + c.memory
	}
}

// prove is what a comparison, made now, has shown for the given moment.
func (c *Check) prove(offset time.Duration, at, now Reading) proof {
	return proof{offset: offset, step: c.stepped(at), at: at.Mono, until: now.Mono + c.memory}
}

// ObserveOwn notes what the clock itself gives as the bound of its error; 0 if it cannot
// tell.
func (c *Check) ObserveOwn(bound time.Duration) { c.own = bound }

// Doubts reports whether the clock itself says that it may be off by more than its bound.
func (c *Check) Doubts() bool { return c.own > c.bound }

// Early reports whether a write that began when the clock showed begun, and was made at
// stamp, is proved to have come before until, though the clock is ahead by more than its
// bound, and may have had it otherwise. Known is false if there is no such stamp.
func (c *Check) Early(stamp, begun, until time.Time) (early, known bool) {
	if !usable(stamp, begun) {
		return false, false
	}
	unit := precision(stamp)
	return begun.Sub(stamp)-unit > c.bound && stamp.Add(-unit).Before(until), true
}

// Fault is how the clock is proved to be wrong now, if it is.
func (c *Check) Fault(now Reading) (f Fault, wrong bool) {
	if c.ahead.offset > 0 && now.Mono < c.ahead.until {
		if off := c.Ahead(now, 0); off > c.bound {
			return Fault{Offset: off}, true
		}
	}
	if off := c.short(c.behind, now); off < -c.bound {
		return Fault{Offset: off}, true
	}
	if c.own > c.bound {
		return Fault{Offset: c.own, Own: true}, true
	}
	return Fault{}, false
}

// short is how far p shows the clock to be behind now, as a negative offset, or zero.
func (c *Check) short(p proof, now Reading) time.Duration {
	if p.offset >= 0 || now.Mono >= p.until {
		return 0
	}
	return p.offset + max(c.stepped(now)-p.step, 0)
}

// Doubted reports whether a record of another's shows the clock to be behind by more than
// its bound, or the store's clock to have been ahead when it was written.
func (c *Check) Doubted(now Reading) bool { return c.short(c.doubt, now) < -c.bound }

// Vouches reports whether the clock itself says that it is within its bound.
func (c *Check) Vouches() bool { return c.own > 0 && c.own <= c.bound }

// Expires is when, by monotonic time, the next proof grows old, or false if there is none.
func (c *Check) Expires(now Reading) (at time.Duration, any bool) {
	for _, p := range []proof{c.ahead, c.behind} {
		if p.until > now.Mono && (!any || p.until < at) {
			at, any = p.until, true
		}
	}
	return at, any
}

// Ahead is how far the clock is ahead, at least, by the comparisons that showed
// it so, however long ago. A step back since is a repair, if it is more than drift
// explains, in fractions of the time since; one ahead may be one, or the machine was
// suspended.
func (c *Check) Ahead(now Reading, drift float64) time.Duration {
	p := c.ahead
	back := c.stepped(now) - p.step + time.Duration(drift*float64(now.Mono-p.at))
	return max(p.offset+min(back, 0), 0)
}

// stepped is how far the wall clock has run ahead of the monotonic one since the
// epoch: by steps, and while the machine was suspended.
func (c *Check) stepped(at Reading) time.Duration { return at.Wall.Sub(c.epoch) - at.Mono }

// precision is how much a store may have cut off of its stamp, or added by rounding:
// it counts its time in some power of ten, as far as the stamp shows it. A stamp of
// whole seconds is mostly a Date header, which many servers renew but once a second.
func precision(stamp time.Time) time.Duration {
	unit := time.Second
	for unit > 1 && stamp.Nanosecond()%int(unit) != 0 {
		unit /= 10
	}
	if unit == time.Second {
		unit *= 2
	}
	return unit - 1
}
