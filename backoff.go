package leaderelection

import (
	"hash/fnv"
	"time"
)

// retry spaces attempts at something that fails: the pause doubles from base to
// limit, measured from the start of one attempt to the start of the next, and
// is lengthened by up to a quarter so that candidates do not march in step.
type retry struct {
	base, limit time.Duration
	seed        uint64 // jitter follows from it and the number of failures, so that a run can be repeated
	fails       uint64
	notBefore   time.Duration

	recent [maxFailures]time.Duration // when the last failures began, in turns
	count  int                        // of all failures
	floor  time.Duration              // the earliest beginning that keeps maxFailures
}

// maxFailures is how many failures may begin within a second, whatever has worked, or
// was found out, between them.
const maxFailures = 4

// backoffs returns how a candidate spaces its failing reads and writes: quickly
// at first, since what is left of a view may be short, and never above four of
// each a second: a write that failed is followed by a read.
func backoffs(name string, term time.Duration) (reads, writes retry) {
	h := fnv.New64a()
	h.Write([]byte(name))
	base := min(max(term/32, minPause), time.Second)
	limit := min(max(term/8, base), 30*time.Second)
	reads = retry{base: base, limit: limit, seed: h.Sum64()}
	writes = retry{base: base, limit: max(limit, 4*base), seed: h.Sum64() + 1}
	return reads, writes
}

// within keeps the pauses, jitter and all, below a PollInterval, so that what happens
// in an outage is noticed no later than anything else; but not above four a second.
func (r *retry) within(poll time.Duration) {
	r.limit = min(r.limit, max(poll*4/5, minPause))
	r.base = min(r.base, r.limit)
}

// minPause is the shortest between two attempts at something that fails.
const minPause = 250 * time.Millisecond

// failed notes a failure of what began at start.
func (r *retry) failed(start time.Duration) {
	pause := r.limit
	if r.fails < 16 {
		pause = min(r.base<<r.fails, r.limit)
	}
	r.fails++
	x := (r.seed + r.fails) * 0x9E3779B97F4A7C15
	x ^= x >> 29
	pause += time.Duration(x%1024) * pause / 4096
	r.recent[r.count%maxFailures] = start
	if r.count++; r.count >= maxFailures {
		r.floor = r.recent[r.count%maxFailures] + time.Second
	}
	r.notBefore = max(r.notBefore, start+pause, r.floor)
}

// worked ends the pauses: the next failure is the first.
func (r *retry) worked() { r.fails, r.notBefore = 0, r.floor }

// hurry ends the present pause.
func (r *retry) hurry() { r.notBefore = r.floor }
