package leaderelection

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// ClockSkewError is an ErrClockSkew with facts: the cause of the end of a leader's
// ctx, where this machine's clock was proved to be off by more than MaxClockSkew.
type ClockSkewError struct {
	// Offset is how far this machine's clock is ahead of true time, at least;
	// negative where it is behind. Where the clock's own bound is the evidence
	// that bound, in either direction.
	Offset time.Duration
	// Bound says that Offset is the Clock's own bound for its error (see
	// clocks.Bounded), and not a comparison with the store's time.
	Bound bool
	// MaxClockSkew is what was promised.
	MaxClockSkew time.Duration
}

// Error says by how much, and what to do.
func (e *ClockSkewError) Error() string {
	const advice = "repair this machine's time service, or raise MaxClockSkew for all candidates"
	switch {
	case e.Bound && e.Offset == clocks.Unbounded:
		return fmt.Sprintf("%v of %v: the kernel says that nothing keeps it right: %s", ErrClockSkew, e.MaxClockSkew, advice)
	case e.Bound:
		return fmt.Sprintf("%v of %v: by its own bound it may be off by %v: %s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice)
	case e.Offset < 0:
		return fmt.Sprintf("%v of %v: it is at least %v behind the store's: %s", ErrClockSkew, e.MaxClockSkew, -e.Offset, advice)
	}
	return fmt.Sprintf("%v of %v: it is at least %v ahead of the store's: %s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice)
}

// Is says that a ClockSkewError is an ErrClockSkew.
func (e *ClockSkewError) Is(target error) bool { return target == ErrClockSkew }

// clockCheck is what a campaign knows of its clock's error. It belongs to the loop.
//
// The store's stamp of a write was made while the request was out: after the
// wall time at which it began, and before the one at which its answer was here.
// So own time less store's time, at the stamp, lies within
//
//	[begin - stamp, answer - stamp]
//
// and the clock is proved to be ahead where the lower end is above MaxClockSkew,
// and behind where the upper end is below -MaxClockSkew. Of a record that another
// wrote only the second is known.
type clockCheck struct {
	bounded clocks.Bounded // nil: the Clock does not know its own error
	asked   bool
	askNext time.Duration
	mute    bool // it has said already that it cannot tell

	ahead, behind proof
	bound         time.Duration // the Clock's own, while that is too large
	told          bool          // that the clock is wrong
	lead          time.Duration // how far it is thought to be ahead
	keepUntil     time.Duration // the record was taken too early, and is neither led by nor released before
}

// proof is evidence that the clock is off. It grows old: a clock that was slewed
// back into its bounds shows no step.
type proof struct {
	offset time.Duration // at least, away from zero
	step   time.Duration // wall less monotonic time, then
	at     time.Duration // by monotonic time
	until  time.Duration // it counts
}

// prove is what a comparison, made now, has shown for the given moment.
func (c *Campaign) prove(offset time.Duration, at, now instant) proof {
	return proof{offset: offset, step: c.stepped(at), at: at.mono, until: now.mono + proofTerms*c.cfg.TermLength}
}

// proofTerms is for how many terms a proof counts unless it is disproved. After
// that the clock is put to the test again, at such a distance from the terms of
// others that it takes nothing from them (see claimableAt).
const proofTerms = 4

// maxDrift is how fast the two clocks of one machine run apart, at most: what a kernel
// slews a clock by for a time service (MAXFREQ in RFC 5905, appendix A).
const maxDrift = 500e-6

// taken is what an acquisition takes from others: a term that it takes for run out.
type taken struct {
	until time.Time     // its TermExpiry
	alive time.Duration // by then the view of the one who led is over, whatever its wall clock shows
}

// takes is what an acquisition that begins now takes from others: by what was read, and
// by what is known, where the store was set back.
func (c *Campaign) takes(now instant) (t taken) {
	for _, e := range []*RaceEntry{c.k.latest, c.k.base} {
		if e.Vacant() || e.Incarnation == c.incarnation || e.Unsynchronized {
			continue // nobody leads by it, or by a clock that is not compared
		}
		if e.TermExpiry.After(t.until) {
			t.until = e.TermExpiry
		}
		t.alive = max(t.alive, now.mono+c.k.termOf(e)+c.k.drift(e))
	}
	return t
}

// keepIfEarly finds out whether the acquisition a, which has happened at the time stamp,
// came before what it has taken was over, though a's clock had it so. The stamp proves
// it; where there is none, it may be so if the clock itself says that it may be off.
// Then the view of the one who led may be alive, and that one may not know that it has
// lost the record. So nobody may lead before that view is over by its monotonic clock: it
// counts from a write that had landed when a began. Until then the record is kept, which
// binds everybody else.
func (c *Campaign) keepIfEarly(a *attempt, stamp time.Time) {
	if !c.checksClock() || c.cfg.WarnOnClockSkew {
		return
	}
	early := c.clock.bound > c.cfg.MaxClockSkew
	if !stamp.IsZero() && a.begun.wall.Sub(stamp).Abs() <= maxStampAge {
		unit := precision(stamp)
		early = a.begun.wall.Sub(stamp)-unit > c.cfg.MaxClockSkew && stamp.Add(-unit).Before(a.taken.until)
	}
	if early {
		c.clock.keepUntil = max(c.clock.keepUntil, a.taken.alive)
	}
}

// checksClock says whether the clock is compared with anything.
func (c *Campaign) checksClock() bool {
	return !c.cfg.SharedClock && !c.cfg.Unsynchronized
}

// checkStamp compares the clock with the store's time of e, which is here now, and
// where e came from a write of one's own with when that began (see origin).
func (c *Campaign) checkStamp(e *RaceEntry, now instant) {
	stamp := commitTS(e.Token)
	if stamp.IsZero() || !c.checksClock() || now.wall.Sub(stamp).Abs() > maxStampAge {
		return
	}
	k, skew, unit := &c.clock, c.cfg.MaxClockSkew, precision(stamp)
	highest := now.wall.Sub(stamp) + unit
	if highest < -skew {
		k.behind = c.prove(highest, now, now)
	}
	if highest < c.suspected(now, 0) { // it was slewed back
		k.ahead.offset, k.ahead.step, k.ahead.at = highest, c.stepped(now), now.mono
	}
	a := c.attempts.origin(e)
	if a == nil {
		return
	}
	switch lowest := a.begun.wall.Sub(stamp) - unit; {
	case lowest > skew:
		k.ahead = c.prove(max(lowest, c.suspected(a.begun, 0)), a.begun, now) // a slow write shows less than a quick one
	case lowest+min(c.stepped(now)-c.stepped(a.begun), 0) >= -skew: // nor was it set back since
		k.behind = proof{}
	}
}

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

// maxStampAge is how far a stamp may be from now: what is further was not made by any
// clock. (A machine that begins in 1970 is 60 years behind.)
const maxStampAge = 100 * 365 * 24 * time.Hour

// stepped is how far the wall clock has run ahead of the monotonic one since the
// campaign began: by steps, and while the machine was suspended.
func (c *Campaign) stepped(at instant) time.Duration {
	return at.wall.Sub(c.f.epoch.Round(0)) - at.mono
}

// suspected is how far the clock is ahead, at least, by the comparisons that showed
// it so, however long ago. A step back since is a repair, where it is more than drift
// explains, in fractions of the time since; one ahead may be one, or the machine was
// suspended.
func (c *Campaign) suspected(now instant, drift float64) time.Duration {
	p := c.clock.ahead
	back := c.stepped(now) - p.step + time.Duration(drift*float64(now.mono-p.at))
	return max(p.offset+min(back, 0), 0)
}

// late puts h off by what the clock is thought to be ahead.
func (k *clockCheck) late(h horizon) horizon {
	if h.mono == 0 {
		h.wall = h.wall.Add(k.lead)
	}
	return h
}

// clockFault is how the clock is proved to be wrong now, or nil.
func (c *Campaign) clockFault(now instant) *ClockSkewError {
	k, skew := &c.clock, c.cfg.MaxClockSkew
	if k.ahead.offset > 0 && now.mono < k.ahead.until {
		if off := c.suspected(now, 0); off > skew {
			return &ClockSkewError{Offset: off, MaxClockSkew: skew}
		}
	}
	if p := k.behind; p.offset < 0 && now.mono < p.until {
		if off := p.offset + max(c.stepped(now)-p.step, 0); off < -skew {
			return &ClockSkewError{Offset: off, MaxClockSkew: skew}
		}
	}
	if k.bound > skew {
		return &ClockSkewError{Offset: k.bound, Bound: true, MaxClockSkew: skew}
	}
	return nil
}

// clockWrong says whether the clock is proved to be wrong, and that matters.
func (c *Campaign) clockWrong(now instant) bool {
	return !c.cfg.WarnOnClockSkew && c.clockFault(now) != nil
}

// tendClock asks a Clock that knows its own error, four times a term, and acts on
// what is known: a leader whose clock is wrong has no view.
func (c *Campaign) tendClock(wake *alarm) {
	k := &c.clock
	if !c.checksClock() {
		return
	}
	if k.keepUntil > wake.now.mono {
		wake.at(k.keepUntil)
	}
	if k.bounded != nil {
		if !k.asked || wake.now.mono >= k.askNext {
			c.askBound(wake.now)
		}
		wake.at(k.askNext)
	}
	k.lead = 0
	if !c.cfg.WarnOnClockSkew {
		k.lead = c.suspected(wake.now, maxDrift)
	}
	fault := c.clockFault(wake.now)
	if fault == nil {
		if k.told {
			k.told = false
			c.f.log(slog.LevelInfo, "the clock is no longer proved wrong", "id", c.cfg.LeaderID)
		}
		return
	}
	for _, p := range []proof{k.ahead, k.behind} {
		if p.until > wake.now.mono {
			wake.at(p.until)
		}
	}
	if !k.told {
		k.told = true
		c.f.log(slog.LevelError, "the clock is wrong", "id", c.cfg.LeaderID, "err", fault, "goes_on", c.cfg.WarnOnClockSkew)
		if t := c.cfg.Trace; t != nil && t.ClockSkew != nil {
			c.f.events.add(func() { t.ClockSkew(*fault) })
		}
	}
	c.endWrong(wake.now, fault)
}

// endWrong ends the reign of a leader whose clock is proved to be wrong.
func (c *Campaign) endWrong(now instant, fault *ClockSkewError) {
	if r := c.reign; r != nil && !r.over && fault != nil && !c.cfg.WarnOnClockSkew {
		c.endReign(now, fault)
	}
}

func (c *Campaign) askBound(now instant) {
	k := &c.clock
	k.asked, k.askNext = true, now.mono+c.f.timeout
	bound, err := k.bounded.ErrorBound()
	if err != nil {
		k.bound = 0
		if !k.mute {
			k.mute = true
			c.f.log(slog.LevelWarn, "the clock cannot tell how far it is off; going by MaxClockSkew and the store's time", "err", err)
		}
		return
	}
	k.bound = bound
}
