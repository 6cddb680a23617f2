package leaderelection

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
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

// clockCheck asks a Clock that knows its own error, and tells what a campaign's lease knows of its clock. It belongs
// to the loop.
type clockCheck struct {
	f       *follower
	l       *lease
	bounded clocks.Bounded // nil: the Clock does not know its own error
	askNext time.Duration
	mute    bool // it was logged that the Clock cannot tell
	told    bool // it was logged that the clock is wrong
}

// fault returns how far the clock is proved wrong. Call it only if it is.
func (k *clockCheck) fault() *ClockSkewError {
	if off := k.l.offset; off != 0 {
		return &ClockSkewError{Offset: off, MaxClockSkew: k.l.skew}
	}
	return &ClockSkewError{Offset: k.l.bound, Bound: true, MaxClockSkew: k.l.skew}
}

// tend asks the Clock for its error, four times a term, and logs what is known.
func (k *clockCheck) tend(wake *alarm) {
	if !k.l.checked {
		return
	}
	if k.bounded != nil {
		if wake.now.mono >= k.askNext {
			k.ask(wake.now)
		}
		wake.at(k.askNext)
	}
	switch wrong := k.l.mistrust; {
	case wrong && !k.told:
		fault := k.fault()
		k.f.log(slog.LevelError, "the clock is wrong, or the store's is: no wall clock is compared until the two agree", "id", k.l.id, "err", fault)
		if t := k.f.trace; t != nil && t.ClockSkew != nil {
			k.f.events.Add(func() { t.ClockSkew(fault) })
		}
	case !wrong && k.told:
		k.f.log(slog.LevelInfo, "the clock is no longer proved wrong: a leadership that is marked Unsynchronized stays so until it ends", "id", k.l.id)
	}
	k.told = k.l.mistrust
}

func (k *clockCheck) ask(now instant) {
	k.askNext = now.mono + k.f.timeout
	bound, err := k.bounded.ErrorBound()
	if err != nil {
		bound = 0
		if !k.mute {
			k.mute = true
			k.f.log(slog.LevelWarn, "the clock cannot tell how far it is off; going by MaxClockSkew and the store's time", "err", err)
		}
	}
	k.l.bounded(bound)
}
