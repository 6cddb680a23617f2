package leaderelection

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/skew"
)

// ClockSkewError is an ErrClockSkew with facts. It is the cause of the end of a leader's ctx if
// this machine's clock is proved to be off by more than MaxClockSkew.
type ClockSkewError struct {
	// Offset is how far this machine's clock is ahead of true time, at least. It is negative
	// if the clock is behind. If Bound is true, it is how far the clock may be off in
	// either direction.
	Offset time.Duration
	// Bound says that Offset is the Clock's own bound for its error (see clocks.Bounded), and
	// not a comparison with the store's time.
	Bound bool
	// MaxClockSkew is that of the Config.
	MaxClockSkew time.Duration
}

// Error says by how much the clock is off, and what to do.
func (e *ClockSkewError) Error() string {
	const advice = "repair this machine's time service, or raise MaxClockSkew for all candidates"
	const either = "; if the store's clock is the wrong one, repair that; clocks.Kernel as the Clock tells which"
	switch {
	case e.Bound && e.Offset == clocks.Unbounded:
		return fmt.Sprintf("%v of %v: the kernel says that nothing keeps it right: %s", ErrClockSkew, e.MaxClockSkew, advice)
	case e.Bound:
		return fmt.Sprintf("%v of %v: by its own bound it may be off by %v: %s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice)
	case e.Offset < 0:
		return fmt.Sprintf("%v of %v: it is at least %v behind the store's: %s%s", ErrClockSkew, e.MaxClockSkew, -e.Offset, advice, either)
	}
	return fmt.Sprintf("%v of %v: it is at least %v ahead of the store's: %s%s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice, either)
}

// Is reports whether target is ErrClockSkew.
func (e *ClockSkewError) Is(target error) bool { return target == ErrClockSkew }

// clockCheck is what a campaign knows of its clock's error. It belongs to the loop.
type clockCheck struct {
	f      *follower
	id     string
	policy ClockPolicy
	skew   time.Duration

	check   skew.Check
	bounded clocks.Bounded // nil: the Clock does not know its own error
	marks   bool           // a leadership may be marked Unsynchronized: it has no hold, and the Clock is monotonic
	asked   bool
	askNext time.Duration
	mute    bool // it was logged that the Clock cannot tell

	told      whose         // the clock that was logged to be wrong
	doubted   bool          // it was logged that one of the two may be
	lead      time.Duration // how far the clock seems to be ahead
	keepUntil time.Duration // until then a record that was taken too early is kept unused

	blind    bool          // the last record that was read had no stamp: a read shows nothing of the clock
	compared time.Duration // just after the start of the newest own write whose stamp is known
}

// whose says which clock is wrong.
type whose int

const (
	nobodys whose = iota
	thisClock
	storesClock
)

// proofTerms is for how many terms a proof counts unless it is disproved. After that the clock is
// tested again, so late after the terms of others that the test takes nothing from them (see
// claimableAt).
const proofTerms = 4

// reading returns i for comparisons with stamps.
func (i instant) reading() skew.Reading { return skew.Reading{Wall: i.wall, Mono: i.mono} }

// taken describes the term that an acquisition takes from another candidate, as one that has run
// out.
type taken struct {
	until time.Time     // its TermExpiry
	alive time.Duration // by then the other's view is over, whatever its wall clock shows
}

// takes returns what an acquisition that begins now takes from others, by all claims to the record.
func (c *Campaign) takes(now instant) (t taken) {
	for _, e := range c.k.claims() {
		if e.Vacant() || c.attempts.wrote(e) || e.Unsynchronized || c.proofs.died(e) {
			continue // nobody leads by it, or its clock is not compared
		}
		if e.TermExpiry.After(t.until) {
			t.until = e.TermExpiry
		}
		t.alive = max(t.alive, now.mono+c.k.termOf(e)+c.k.drift(e))
	}
	return t
}

// keepIfEarly finds out whether the acquisition a, which the store has stamped, came too early:
// before the term that it has taken was over, though a's clock showed that it was. The stamp proves
// it. Without a stamp, it may be so if the Clock says that it may be off.
//
// If it is so, the view of the earlier leader may be alive, and that leader may not know that it
// has lost the record. So nobody may lead before that view is over by its leader's monotonic clock.
// The view counts from a write that had landed when a began. Until it is over, the record is kept
// unused, which keeps out everybody else.
func (k *clockCheck) keepIfEarly(a *attempt, stamp time.Time) {
	if !k.decides() {
		return
	}
	early, known := k.check.Early(stamp, a.begun.wall, a.taken.until)
	if !known {
		early = k.check.Doubts()
	}
	if early {
		k.keepUntil = max(k.keepUntil, a.taken.alive)
	}
}

// compares reports whether the clock is compared with anything.
func (k *clockCheck) compares() bool { return k.policy <= SynchronizedWarnOnly }

// decides reports whether what is found out counts, and is not only logged.
func (k *clockCheck) decides() bool { return k.policy < SynchronizedWarnOnly }

// observe compares the clock with the store's stamp of e, which has arrived now. If e came from the
// campaign's write a, it also compares the stamp with the start of that write.
func (k *clockCheck) observe(e *RaceEntry, a *attempt, now instant) {
	if !k.compares() {
		return
	}
	stamp := commitTS(e.Token)
	var begun *skew.Reading
	if a != nil {
		r := a.begun.reading()
		begun = &r
	}
	if a != nil && !stamp.IsZero() {
		if a.kind == OpAcquire {
			k.keepIfEarly(a, stamp) // some stores stamp what is read, and not the answer to a write
		}
		k.compared = max(k.compared, a.begun.mono+1) // of an older write a feed may tell late
	}
	k.check.Observe(stamp, begun, now.reading())
}

// readsBack reports whether the record e of the confirmed write a is an acquisition that must be
// read back before it begins a leadership. It must if the answer has no stamp, as with NATS, and a
// read may have one: then the clock is compared by the read.
func (k *clockCheck) readsBack(e *RaceEntry, a *attempt) bool {
	return a != nil && a.kind == OpAcquire && commitTS(e.Token).IsZero() && k.compared <= a.begun.mono && k.decides() && !k.blind
}

// compareByRead makes a leader read its own record once a term, if neither answers nor a feed bring
// the stamps of its writes. It reads some time after an extension, when replicas have it, and in
// the first half of the time to the next extension, so that this one does not wait for long.
func (c *Campaign) compareByRead(wake *alarm, r *leadership) {
	k, pause := &c.clock, c.cfg.ExtendEvery/4
	if !k.compares() || k.blind || r.cause != nil || c.f.hanging > 0 || k.compared+c.cfg.TermLength > r.confirmed+c.cfg.ExtendEvery {
		return
	}
	if due := max(r.confirmed, c.f.lastRead) + pause; due < r.confirmed+2*pause {
		c.f.read(wake, due)
	}
}

// late puts h off by as much as the wall clock seems to be ahead.
func (k *clockCheck) late(h deadline) deadline {
	h.wall = h.wall.Add(k.lead)
	return h
}

// fault returns how far the clock is proved wrong now, or nil.
func (k *clockCheck) fault(now instant) *ClockSkewError {
	f, wrong := k.check.Fault(now.reading())
	if !wrong {
		return nil
	}
	return &ClockSkewError{Offset: f.Offset, Bound: f.Own, MaxClockSkew: k.skew}
}

// wrong reports whether the clock is proved wrong, and that counts.
func (k *clockCheck) wrong(now instant) bool {
	f := k.fault(now)
	return f != nil && k.decides() && !k.vouched(f)
}

// vouched reports whether there is a second witness against the fault f: the Clock knows that it is
// within MaxClockSkew. Then the store's clock is the wrong one.
func (k *clockCheck) vouched(f *ClockSkewError) bool {
	return f != nil && !f.Bound && k.marks && k.check.Vouches()
}

// disputed reports whether the store's clock and the Clock contradict each other, so that nobody can
// know for sure which is wrong. A leadership then rests on monotonic clocks alone: it is marked
// Unsynchronized.
func (k *clockCheck) disputed(now instant) bool { return k.decides() && k.vouched(k.fault(now)) }

// tend asks a Clock that knows its own error, four times a term, and logs what is known.
func (k *clockCheck) tend(wake *alarm) {
	if !k.compares() {
		return
	}
	if k.keepUntil > wake.now.mono {
		wake.at(k.keepUntil)
	}
	if k.bounded != nil {
		if !k.asked || wake.now.mono >= k.askNext {
			k.askBound(wake.now)
		}
		wake.at(k.askNext)
	}
	k.lead = 0
	if k.decides() {
		k.lead = k.check.Ahead(wake.now.reading(), skew.MaxDrift)
	}
	fault := k.fault(wake.now)
	if fault == nil {
		switch k.told {
		case thisClock:
			k.f.log(slog.LevelInfo, "the clock is no longer proved wrong", "id", k.id)
		case storesClock:
			k.f.log(slog.LevelInfo, "the store's clock is no longer proved wrong: a leadership that is marked Unsynchronized stays so until it ends", "id", k.id)
		}
		k.told = nobodys
		doubted := k.check.Doubted(wake.now.reading())
		if doubted && !k.doubted {
			k.f.log(slog.LevelWarn, "the store has stamped the record later than this clock shows: one of the two is wrong, or was when the record was written; the next write of this candidate decides", "id", k.id)
		}
		k.doubted = doubted
		return
	}
	if at, any := k.check.Expires(wake.now.reading()); any {
		wake.at(at)
	}
	switch vouched := k.vouched(fault); {
	case vouched && k.told != storesClock:
		k.told = storesClock
		msg := "the store's clock is wrong, or the kernel is wrong about this one: set the store's clock right"
		if k.decides() {
			msg += "; until then leaderships are marked Unsynchronized, each until it ends"
		}
		k.f.log(slog.LevelError, msg, "id", k.id, "store_ahead", -fault.Offset, "place", k.f.knownPlace(), "max_clock_skew", k.skew, "goes_on", true)
	case !vouched && k.told != thisClock:
		k.told = thisClock
		k.f.log(slog.LevelError, "the clock is wrong", "id", k.id, "err", fault, "goes_on", !k.decides())
		if t := k.f.trace; t != nil && t.ClockSkew != nil {
			k.f.events.Add(func() { t.ClockSkew(fault) })
		}
	}
}

func (k *clockCheck) askBound(now instant) {
	k.asked, k.askNext = true, now.mono+k.f.timeout
	bound, err := k.bounded.ErrorBound()
	if err != nil {
		k.check.ObserveOwn(0)
		if !k.mute {
			k.mute = true
			k.f.log(slog.LevelWarn, "the clock cannot tell how far it is off; going by MaxClockSkew and the store's time", "err", err)
		}
		return
	}
	k.check.ObserveOwn(bound)
}

// endWrong ends the leadership of a leader whose clock is proved to be wrong.
func (c *Campaign) endWrong(now instant) {
	if r := c.leadership; r != nil && !r.over && c.clock.wrong(now) {
		c.endLeadership(now, c.clock.fault(now))
	}
}
