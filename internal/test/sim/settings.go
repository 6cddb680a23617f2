package sim

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// settings are one process's own part of its Config. Processes of one election may
// differ, as when a fleet is upgraded: what has to agree is that MaxClockSkew is at
// least what the clocks keep.
type settings struct {
	term, skew     time.Duration
	poll, drain    time.Duration
	unsynchronized bool // Unsynchronized is set
	hold, extend   time.Duration
	priority       int
}

// settings draws those of a process that starts on the host.
func (w *world) settings(h *host) settings {
	s := settings{term: w.Term, skew: w.Skew, poll: w.Poll, drain: w.Drain, unsynchronized: h.unsynchronized}
	if w.Mixed {
		w.mix(&s)
	}
	if s.unsynchronized && s.skew == 0 {
		s.skew = time.Microsecond // zero would mean the default
	}
	w.wish(&s)
	return s
}

// wish draws what a process asks for beyond its lease.
func (w *world) wish(s *settings) {
	if w.Hold > 0 && w.wishes.IntN(3) > 0 {
		s.hold = max(time.Duration(w.wishes.Int64N(int64(w.Hold)+1)), time.Millisecond) // StartHeld refuses less
	}
	if w.Ranks > 0 {
		s.priority = w.wishes.IntN(w.Ranks) - 1
	}
	if w.Paced && w.wishes.IntN(2) == 0 {
		low, most := s.term/20, (s.term-s.skew)/2
		s.extend = low + time.Duration(w.wishes.Int64N(int64(most-low)+1))
	}
}

// extendEvery is the shortest time between two extensions: half of an ExtendEvery after a failure.
func (s *settings) extendEvery() time.Duration {
	if s.extend == 0 {
		return s.span() / 2
	}
	return s.extend / 2
}

// mix has a process's durations differ from those of the others.
func (w *world) mix(s *settings) {
	if w.rng.IntN(2) == 0 {
		s.skew = w.between(w.Skew, w.mostSkew()+1)
	}
	s.term = max(s.term, 2*s.skew)
	if w.rng.IntN(2) == 0 {
		s.term = w.between(max(w.Term/2, 2*s.skew, le.MinTermLength), w.longest()+1)
	}
	s.poll = 0
	if w.rng.IntN(2) == 0 {
		s.poll = w.between(s.term/10, w.longest()+1)
	}
	s.drain = s.term
	if w.rng.IntN(3) == 0 {
		s.drain = w.between(s.term/10, 3*s.term)
	}
	s.unsynchronized = s.unsynchronized || w.Unsynchronized > 0 && w.rng.IntN(5) == 0
}

// span is how long a view lasts from when its term was asked for.
func (s *settings) span() time.Duration { return s.term - s.skew }

// allowance is what two monotonic clocks may run apart in a term of that length.
func (s *settings) allowance(term time.Duration) time.Duration { return max(s.skew, term/100) }

// pollEvery is PollInterval, or what stands for it.
func (s *settings) pollEvery() time.Duration {
	if s.poll == 0 {
		return s.term / 2
	}
	return s.poll
}

// longest is the greatest TermLength of a process.
func (p *Params) longest() time.Duration {
	if p.Mixed {
		return p.Term + p.Term/2
	}
	return p.Term
}

// mostSkew is the greatest MaxClockSkew of a process.
func (p *Params) mostSkew() time.Duration {
	if p.Mixed {
		return p.Skew + p.Skew/2
	}
	return p.Skew
}
