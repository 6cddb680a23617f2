package leaderelection

import (
	"hash/fnv"
	"time"
)

// retry spaces attempts at something that fails. The pause doubles from base to limit. It is
// measured from the start of one attempt to the start of the next. It is lengthened by up to a
// quarter, so that candidates do not all try at the same time.
type retry struct {
	base, limit time.Duration
	seed        uint64 // it and the number of failures decide the jitter, so that a run can be repeated
	fails       uint64
	notBefore   time.Duration

	recent [maxFailures]time.Duration // when the last failures began, as a ring
	count  int                        // the number of all failures
	floor  time.Duration              // the earliest start that keeps to maxFailures
}

// maxFailures is how many attempts that fail may begin within a second, whatever has worked, or was
// found out, between them.
const maxFailures = 4

// backoffs returns how a candidate spaces its failing reads and writes. Pauses are short at first,
// since little may be left of a view. There are never more than four of each in a second: a read
// follows each write that failed.
func backoffs(name string, term time.Duration) (reads, writes retry) {
	h := fnv.New64a()
	h.Write([]byte(name))
	base := min(max(term/32, minPause), time.Second)
	limit := min(max(term/8, base), 30*time.Second)
	reads = retry{base: base, limit: limit, seed: h.Sum64()}
	writes = retry{base: base, limit: max(limit, 4*base), seed: h.Sum64() + 1}
	return reads, writes
}

// within keeps the pauses, with their jitter, below a PollInterval. So what happens in an outage is
// noticed no later than at other times. There are still at most four attempts in a second.
func (r *retry) within(poll time.Duration) {
	r.limit = min(r.limit, max(poll*4/5, minPause))
	r.base = min(r.base, r.limit)
}

// minPause is the shortest pause between two attempts at something that fails.
const minPause = 250 * time.Millisecond

// failed notes that the attempt that began at start has failed.
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

// hurry ends the current pause.
func (r *retry) hurry() { r.notBefore = r.floor }
