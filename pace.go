package leaderelection

import (
	"errors"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// turn returns when a follower may ask for what all others ask for since the same moment: at a random time within
// spread from the first call for this state of the record. What it learns until then may answer it.
func (c *Campaign) inTurn(now instant, of *RaceEntry, spread time.Duration) time.Duration {
	if !same(of, c.awaited) {
		c.awaited, c.turnAt = of, now.mono+loop.Part(c.reads.Seed+uint64(of.ElectionNumber), spread)
	}
	return c.turnAt
}

// urgency says how much depends on the next store call of a candidate. For an observer, which has
// no record to keep, nothing is urgent.
type urgency struct {
	keeps bool          // the record is this candidate's: to keep, to give back, or to take again
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
func (u *urgency) urgent(now instant) bool { return u.keeps || now.mono < u.stake }

// weigh notes how much depends on the next call.
//
// The candidate that led last has the record until another takes it. So it asks as often as a
// leader, and is the first to be back after an outage. Its requests are few, since it is one.
func (c *Campaign) weigh(now instant) {
	u := &c.urgency
	u.keeps, u.stake = true, 0
	switch r := c.leadership; {
	case c.l.lead != nil:
		u.stake = c.l.lead.view.mono
	case r == nil && (c.stopping || c.releasing(now)):
		u.stake = max(c.stopAt, c.idleSince) + min(c.cfg.TermLength/2, leaveTime)
	default:
		u.keeps = c.owns()
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
	case kind == "" || c.urgent(now) || c.l.base.of == nil || kind == OpAcquire && c.l.proof || c.l.end(c.l.newest) == free:
		return 0
	case c.feedUp:
		return c.inTurn(now, c.l.newest.of, wait/2)
	default:
		return c.inTurn(now, c.l.newest.of, wait)
	}
}

// span is over how long those that wait for the end of a term spread what they ask then. Five hundred that poll make
// fewer than a hundred operations in a tenth of a second if they have a twentieth of the default term.
func span(term time.Duration) time.Duration { return min(term/20, time.Second) }
