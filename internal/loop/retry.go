package loop

import (
	"hash/fnv"
	"time"
)

// Retry spaces attempts at something that fails. If it is urgent, the pause doubles from Base to Limit. If not, the
// first pause is a quarter of Poll, the next is Poll, and all others are twice that: so those that stand by and fail do
// not ask more often than those that work. A pause is measured from the start of one attempt to the start of the next.
// It is lengthened by up to a quarter, so that not all try at the same time.
type Retry struct {
	Base, Limit time.Duration
	Poll        time.Duration
	Seed        uint64        // it and the number of failures decide the jitter, so that a run can be repeated
	NotBefore   time.Duration // when the next attempt may begin
	Fails       int           // how many have failed since one worked

	wary int // after how many more successes polls are as frequent as ever
	calm int // how many attempts have worked since the last one that failed

	recent [maxFailures]time.Duration // when the last failures began, as a ring
	count  int                        // the number of all failures
	floor  time.Duration              // the earliest start that keeps to maxFailures
	noted  bool                       // the last attempt was counted when it began
}

// maxFailures is how many attempts that fail may begin within a second, whatever has worked, or was
// found out, between them.
const maxFailures = 4

// MinPause is the shortest pause between two attempts at something that fails.
const MinPause = 250 * time.Millisecond

// NewRetry returns how somebody of that name spaces its attempts. Urgent ones have short pauses at first: a
// thirty-second of the term, and up to an eighth.
func NewRetry(name string, poll, term time.Duration) Retry {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := Retry{Base: min(max(term/32, MinPause), time.Second), Seed: h.Sum64(), calm: 2 * wariness}
	r.Limit = min(max(term/8, r.Base), 30*time.Second)
	r.StandBy(poll, term)
	return r
}

// StandBy sets the pauses of what is not urgent. Who stands by reads at least once a term.
func (r *Retry) StandBy(poll, term time.Duration) { r.Poll = max(min(poll, term), MinPause) }

// Began counts the attempt that begins at start, since it may be one of many in a row.
func (r *Retry) Began(start time.Duration) {
	r.note(start)
	r.noted = true
}

func (r *Retry) note(start time.Duration) {
	r.recent[r.count%maxFailures] = start
	if r.count++; r.count >= maxFailures {
		r.floor = r.recent[r.count%maxFailures] + time.Second
	}
}

// Failed notes that the attempt that began at start has failed.
func (r *Retry) Failed(start time.Duration, urgent bool) {
	pause := min(r.Base<<min(r.Fails, 16), r.Limit)
	if !urgent {
		pause = [...]time.Duration{min(r.Poll/4, r.Limit), r.Poll, 2 * r.Poll}[min(r.Fails, 2)]
	}
	if r.Fails++; r.calm < 2*wariness {
		r.wary = wariness
	}
	r.calm = 0
	pause += Part(r.Seed+uint64(r.Fails), pause) / 4 //nolint:gosec // it is not negative
	if !r.noted {
		r.note(start)
	}
	r.noted = false
	r.NotBefore = max(r.NotBefore, start+pause, r.floor)
}

// Worked ends the pauses: the next failure is the first.
func (r *Retry) Worked() {
	r.Hurry()
	r.Fails, r.wary, r.calm = 0, max(r.wary-1, 0), r.calm+1
}

// Hurry ends the current pause.
func (r *Retry) Hurry() { r.NotBefore = r.floor }

// Floor is the earliest start of an attempt, whatever has worked.
func (r *Retry) Floor() time.Duration { return r.floor }

// wariness is for how many polls who stands by polls half as often, after a failure that came within twice as many polls
// of another. So many find the pace that a store with a limit of requests allows, and what it refuses is
// little. One lost answer changes nothing.
const wariness = 4

// Slow is how much longer than asked for the time between two polls is, as a shift.
func (r *Retry) Slow() int { return min(r.wary, 1) }

// Part returns a part of d, from none to nearly all. It looks random, and seed alone decides it, so that a run can be
// repeated.
func Part(seed uint64, d time.Duration) time.Duration {
	x := seed * 0x9E3779B97F4A7C15
	x ^= x >> 29
	return time.Duration(x%1024) * d / 1024
}
