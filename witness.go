package leaderelection

import (
	"slices"
	"time"
)

// witness judges this machine's wall clock: by the store's stamps of its own writes, and by the bound that
// the clock itself gives for its error, if it knows one.
//
// A stamp was made while the request was out, so the clock's error lies within
//
//	[begun - stamp, answered - stamp]
//
// and the clock is proved to be ahead if the lower end is above MaxClockSkew, and behind if the upper end is
// below minus MaxClockSkew. Or the store's clock is wrong: nobody can tell. In both cases the two are not
// compared any more. The next stamp that fits ends that.
type witness struct {
	offset time.Duration // how far the clock is ahead by the last stamp that did not fit, at least; negative: behind; 0: it fits
	bound  time.Duration // the clock's own bound for its error, if that is beyond MaxClockSkew; else 0
}

// wrong reports whether no wall clock may be compared.
func (w *witness) wrong() bool { return w.offset != 0 || w.bound != 0 }

// observe takes in a store's stamp of a write that began at begun and was answered by now. It reports whether the
// clock was ahead by more than skew when the write began.
func (w *witness) observe(stamp time.Time, begun, now instant, skew time.Duration) (ahead bool) {
	if stamp.IsZero() || now.wall.Sub(stamp).Abs() > maxAge {
		return false
	}
	low, high := begun.wall.Sub(stamp)-resolution(stamp), now.wall.Sub(stamp)+resolution(stamp)
	switch {
	case low > skew:
		w.offset = low
	case high < -skew:
		w.offset = high
	case low >= -skew && high <= skew:
		w.offset = 0
	}
	return low > skew
}

// own takes in what the clock itself gives as the bound of its error; 0 if it cannot tell.
func (w *witness) own(bound, skew time.Duration) {
	if w.bound = 0; bound > skew {
		w.bound = bound
	}
}

// bounded takes in the clock's own bound for its error; 0 if it cannot tell.
func (l *lease) bounded(bound time.Duration) {
	l.own(bound, l.skew)
	for i := range l.writes {
		if w := &l.writes[i]; l.witness.bound != 0 && w.robs() {
			l.hush(w.begun) // it may have been taken too early
		}
	}
	l.doubt()
}

// doubt ends a view that rests on a clock that is proved wrong.
func (l *lease) doubt() {
	l.mistrust = l.checked && l.wrong()
	if l.mistrust && l.lead != nil && !l.lead.confirmed.of.Unsynchronized {
		l.leave(ErrClockSkew)
	}
}

// measuring reports whether this candidate leads or may have won by its monotonic clock alone. Then what a suspend
// takes must be noticed soon.
func (l *lease) measuring(now instant) bool {
	return slices.ContainsFunc(l.writes, func(w write) bool { return w.of.Unsynchronized && !w.done && w.view.live(now) })
}

// maxAge is how far a stamp may be from now: what is further was not made by any clock. (A machine that
// begins in 1970 is 60 years behind.)
const maxAge = 100 * MaxTermLength

// resolution is what a store may have cut off of its stamp, or added by rounding: less than one unit of its
// last digit that is not zero. Whole seconds may be even ones.
func resolution(stamp time.Time) time.Duration {
	unit := time.Second
	for unit > 1 && stamp.Nanosecond()%int(unit) != 0 {
		unit /= 10
	}
	if unit == time.Second {
		unit *= 2
	}
	return unit - 1
}
