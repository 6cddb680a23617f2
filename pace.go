package leaderelection

import (
	"errors"
	"hash/fnv"
	"time"
)

// retry spaces attempts at something that fails. If it is urgent, the pause doubles from base to
// limit. If not, the first pause is a quarter of poll, the next is poll, and all others are twice that: so
// standbys that fail do not ask more often than standbys that work. A pause is measured from the
// start of one attempt to the start of the next. It is lengthened by up to a quarter, so that
// candidates do not all try at the same time.
type retry struct {
	base, limit time.Duration
	poll        time.Duration
	seed        uint64 // it and the number of failures decide the jitter, so that a run can be repeated
	fails       uint64
	notBefore   time.Duration
	wary        int // after how many more successes polls are as frequent as ever
	calm        int // how many attempts have worked since the last one that failed

	recent [maxFailures]time.Duration // when the last failures began, as a ring
	count  int                        // the number of all failures
	floor  time.Duration              // the earliest start that keeps to maxFailures
	noted  bool                       // the last attempt was counted when it began
}

// maxFailures is how many attempts that fail may begin within a second, whatever has worked, or was
// found out, between them.
const maxFailures = 4

// backoffs returns how a candidate spaces its failing reads and writes. Urgent attempts have short
// pauses at first, since little may be left of a view. There are never more than four of each in a
// second: a read follows each write that failed.
func backoffs(name string, poll, term time.Duration) (reads, writes retry) {
	h := fnv.New64a()
	h.Write([]byte(name))
	base := min(max(term/32, minPause), time.Second)
	limit := min(max(term/8, base), 30*time.Second)
	reads = retry{base: base, limit: limit, seed: h.Sum64(), calm: 2 * wariness}
	writes = retry{base: base, limit: max(limit, 4*base), seed: h.Sum64() + 1, calm: 2 * wariness}
	reads.standBy(poll, term)
	writes.standBy(poll, term)
	return reads, writes
}

// standBy sets the pauses of what is not urgent. A standby that works reads at least once a term.
func (r *retry) standBy(poll, term time.Duration) { r.poll = max(min(poll, term), minPause) }

// minPause is the shortest pause between two attempts at something that fails.
const minPause = 250 * time.Millisecond

// failed notes that the attempt that began at start has failed.
func (r *retry) failed(start time.Duration, urgent bool) {
	pause := min(r.base<<min(r.fails, 16), r.limit)
	if !urgent {
		pause = [...]time.Duration{min(r.poll/4, r.limit), r.poll, 2 * r.poll}[min(r.fails, 2)]
	}
	if r.fails++; r.calm < 2*wariness {
		r.wary = wariness
	}
	r.calm = 0
	pause += part(r.seed+r.fails, pause) / 4
	if !r.noted {
		r.note(start)
	}
	r.noted = false
	r.notBefore = max(r.notBefore, start+pause, r.floor)
}

// part returns a part of d, from none to nearly all. It looks random, and seed alone decides it, so that a run can be
// repeated.
func part(seed uint64, d time.Duration) time.Duration {
	x := seed * 0x9E3779B97F4A7C15
	x ^= x >> 29
	return time.Duration(x%1024) * d / 1024
}

// note counts the attempt that began at start: it has failed, or may be one of many in a row.
func (r *retry) note(start time.Duration) {
	r.recent[r.count%maxFailures] = start
	if r.count++; r.count >= maxFailures {
		r.floor = r.recent[r.count%maxFailures] + time.Second
	}
}

// worked ends the pauses: the next failure is the first.
func (r *retry) worked() {
	r.fails, r.notBefore = 0, r.floor
	r.wary, r.calm = max(r.wary-1, 0), r.calm+1
}

// wariness is for how many polls a standby polls half as often, after a failure that came within twice as many polls
// of another. So many standbys find the pace that a store with a limit of requests allows, and what it refuses is
// little. One lost answer changes nothing.
const wariness = 4

// hurry ends the current pause.
func (r *retry) hurry() { r.notBefore = r.floor }

// turn returns when a follower may ask for what all others ask for since the same moment: at a random time within
// spread from the first call for this state of the record. What it learns until then may answer it.
func (f *follower) turn(now instant, of *RaceEntry, spread time.Duration) time.Duration {
	if !same(of, f.awaited) {
		f.awaited, f.turnAt = of, now.mono+part(f.reads.seed+uint64(of.ElectionNumber), spread)
	}
	return f.turnAt
}

// urgency says how much depends on the next store call of a candidate. For an observer, which has
// no record to keep, nothing is urgent.
type urgency struct {
	owns  bool          // the record is this candidate's: to keep, to give back, or to take again
	stake time.Duration // until then it has a view, may have won one, or gives back its record
	asked time.Duration // when the store last asked for a pause
	pause time.Duration // for how long
}

// maxAsked is the longest pause that a store may ask for. A longer one may be a mistake, or
// somebody's outage page, and nobody would lead for that long.
const maxAsked = time.Minute

// asksFor returns the pause that the store asks for by err.
func asksFor(err error) time.Duration {
	var asked *RetryAfterError
	if !errors.As(err, &asked) {
		return 0
	}
	return min(max(asked.After, 0), maxAsked)
}

// respect takes in the answer to a call: the store may have asked for a pause. A write that is
// answered shows that the store serves again.
func (u *urgency) respect(a *answer, now instant) {
	if pause := asksFor(a.err); pause > 0 {
		u.asked, u.pause = now.mono, pause
	} else if a.kind != OpRead && (a.err == nil || errors.Is(a.err, ErrLostRace)) {
		u.pause = 0
	}
}

// notBefore returns when the next call may begin, as the store has asked: at half of the time until
// the stake, at the latest.
func (u *urgency) notBefore() time.Duration {
	if u.stake > u.asked {
		return u.asked + min(u.pause, (u.stake-u.asked)/2)
	}
	return u.asked + u.pause
}

// urgent reports whether a read is urgent that fails now, by what was weighed when it could still
// succeed: the end of the step before.
func (u *urgency) urgent(now instant) bool { return u.owns || now.mono < u.stake }

// weigh notes how much depends on the next call.
//
// The candidate that led last has the record until another takes it. So it asks as often as a
// leader, and is the first to be back after an outage. Its requests are few, since it is one.
func (c *Campaign) weigh(now instant) {
	u := &c.f.urgency
	u.owns, u.stake = true, 0
	switch r := c.leadership; {
	case c.l.lead != nil:
		u.stake = c.l.lead.view.mono
	case r == nil && (c.stopping || c.releasing(now)):
		u.stake = max(c.stopAt, c.idleSince) + min(c.cfg.TermLength/2, leaveTime)
	default:
		u.owns = c.owns()
		u.stake = c.l.stake()
	}
}

// stake returns until when an open acquisition may have won a view; 0: none.
func (l *lease) stake() (until time.Duration) {
	for i := range l.writes {
		if w := &l.writes[i]; l.unsure && w.kind == OpAcquire && !w.done {
			until = max(until, w.view.mono)
		}
	}
	return until
}

// turn returns when a call of this kind may begin, if all other candidates may make it at the same moment: when a term,
// a hold or a reservation is over. Each waits for a random part of a span, and those that learn of a new leader meanwhile
// make none. A feed tells its standbys who was first, so they need half of the span. What is vacant is free for
// everybody at once, as is the record of a process that is proved dead.
func (c *Campaign) turn(now instant, kind OpKind) time.Duration {
	switch wait := span(c.cfg.TermLength); {
	case kind == "" || c.f.urgent(now) || c.l.base.of == nil || kind == OpAcquire && c.l.proof || c.l.end(c.l.newest) == free:
		return 0
	case c.f.feedUp:
		return c.f.turn(now, c.l.newest.of, wait/2)
	default:
		return c.f.turn(now, c.l.newest.of, wait)
	}
}

// span is over how long those that wait for the end of a term spread what they ask then. Five hundred that poll make
// fewer than a hundred operations in a tenth of a second if they have a twentieth of the default term.
func span(term time.Duration) time.Duration { return min(term/20, time.Second) }
