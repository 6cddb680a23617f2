package leaderelection

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/skew"
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
type clockCheck struct {
	check   skew.Check
	bounded clocks.Bounded // nil: the Clock does not know its own error
	asked   bool
	askNext time.Duration
	mute    bool // it has said already that it cannot tell

	told      bool          // that the clock is wrong
	lead      time.Duration // how far it is thought to be ahead
	keepUntil time.Duration // the record was taken too early, and is neither led by nor released before
}

// proofTerms is for how many terms a proof counts unless it is disproved. After
// that the clock is put to the test again, at such a distance from the terms of
// others that it takes nothing from them (see claimableAt).
const proofTerms = 4

// reading is the look at the clock that comparisons are made with.
func (i instant) reading() skew.Reading { return skew.Reading{Wall: i.wall, Mono: i.mono} }

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
	early, known := c.clock.check.Early(stamp, a.begun.wall, a.taken.until)
	if !known {
		early = c.clock.check.Doubts()
	}
	if early {
		c.clock.keepUntil = max(c.clock.keepUntil, a.taken.alive)
	}
}

// checksClock reports whether the clock is compared with anything.
func (c *Campaign) checksClock() bool {
	return !c.cfg.SharedClock && !c.cfg.Unsynchronized
}

// checkStamp compares the clock with the store's time of e, which is here now, and if e
// came from a write of one's own, with when that began.
func (c *Campaign) checkStamp(e *RaceEntry, now instant) {
	if !c.checksClock() {
		return
	}
	stamp := commitTS(e.Token)
	var begun *skew.Reading
	if a := c.attempts.origin(e); a != nil {
		r := a.begun.reading()
		begun = &r
		if a.kind == OpAcquire && !stamp.IsZero() {
			c.keepIfEarly(a, stamp) // some stores stamp what they tell of, and not the answer to a write
		}
	}
	c.clock.check.Observe(stamp, begun, now.reading())
}

// late puts h off by what the clock is thought to be ahead.
func (k *clockCheck) late(h deadline) deadline {
	if h.mono == 0 {
		h.wall = h.wall.Add(k.lead)
	}
	return h
}

// clockFault is how the clock is proved to be wrong now, or nil.
func (c *Campaign) clockFault(now instant) *ClockSkewError {
	f, wrong := c.clock.check.Fault(now.reading())
	if !wrong {
		return nil
	}
	return &ClockSkewError{Offset: f.Offset, Bound: f.Own, MaxClockSkew: c.cfg.MaxClockSkew}
}

// clockWrong reports whether the clock is proved to be wrong, and that matters.
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
		k.lead = k.check.Ahead(wake.now.reading(), skew.MaxDrift)
	}
	fault := c.clockFault(wake.now)
	if fault == nil {
		if k.told {
			k.told = false
			c.f.log(slog.LevelInfo, "the clock is no longer proved wrong", "id", c.cfg.LeaderID)
		}
		return
	}
	if at, any := k.check.Expires(wake.now.reading()); any {
		wake.at(at)
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

// endWrong ends the leadership of a leader whose clock is proved to be wrong.
func (c *Campaign) endWrong(now instant, fault *ClockSkewError) {
	if r := c.leadership; r != nil && !r.over && fault != nil && !c.cfg.WarnOnClockSkew {
		c.endLeadership(now, fault)
	}
}

func (c *Campaign) askBound(now instant) {
	k := &c.clock
	k.asked, k.askNext = true, now.mono+c.f.timeout
	bound, err := k.bounded.ErrorBound()
	if err != nil {
		k.check.ObserveOwn(0)
		if !k.mute {
			k.mute = true
			c.f.log(slog.LevelWarn, "the clock cannot tell how far it is off; going by MaxClockSkew and the store's time", "err", err)
		}
		return
	}
	k.check.ObserveOwn(bound)
}
