package leaderelection

import (
	"errors"
	"log/slog"
)

// answered takes in what a store call led to, or that it was given up.
func (c *Campaign) answered(a *answer, now instant) {
	c.noteTrouble(a, now)
	switch {
	case a.kind == OpRead:
		c.readAnswered(a, now)
	case a.err == nil:
		c.wrote(a, now)
	case a.abandoned && !a.givenUp: // its outcome is an open question already
		if c.stopping && c.leadership == nil {
			c.k.unsure = true // and may have changed since it was asked
		}
	default:
		c.writeFailed(a, now)
	}
}

// readAnswered takes in what a read has returned.
func (c *Campaign) readAnswered(a *answer, now instant) {
	switch {
	case a.err != nil:
		c.single.failed(a.err)
		return
	case a.abandoned: // later calls may have told more since: news, if it is any
		c.learn(a.got, a.start, now, wasPushed)
		return
	}
	c.f.feedCheck(&c.k, a.got, now)
	c.learn(a.got, a.start, now, wasRead)
	if c.leadership == nil && c.stopping && c.f.hanging == 0 {
		c.attempts.clear() // what has not happened by now is no longer awaited
	}
}

// wrote takes in that a write has happened.
func (c *Campaign) wrote(a *answer, now instant) {
	c.writes.worked()
	c.refused = refusals{}
	if !a.abandoned {
		c.k.unsure = false
	}
	e := a.entry // nobody keeps it: it is the record now
	e.Token = a.token
	if a.kind == OpRelease && c.cooldown > now.mono {
		c.cooldown = now.mono + c.cfg.TermLength
	}
	c.learn(e, a.start, now, wasWritten)
}

// writeFailed takes in that the outcome of a write is open: that is asked before any
// other. A lost race may bring the answer along.
func (c *Campaign) writeFailed(a *answer, now instant) {
	c.k.unsure = true
	c.writes.failed(a.start.mono)
	c.single.failed(a.err)
	if !errors.Is(a.err, ErrLostRace) {
		c.refused.over = nil
		c.f.reads.notBefore = max(c.f.reads.notBefore, c.writes.notBefore)
		return
	}
	c.refused.over, c.refused.void = a.over, a.over
	var lost *LostRaceError
	if errors.As(a.err, &lost) && lost.Current != nil {
		if err := lost.Current.damaged(); err != nil {
			c.f.log(slog.LevelError, "the record that refused a write cannot be used", "err", err)
			return
		}
		c.learn(lost.Current, a.start, now, wasRead)
	}
}

// refusals counts the writes that a store refused though the record, read again, was
// what they were conditional on: a race that nobody won.
type refusals struct {
	over  *RaceEntry // what the last refused write was conditional on, until it is read again
	void  *RaceEntry // the same, until a write works
	count int
}

// lags reports whether the base may be a lagging replica's: a write over it was refused,
// and the read before the last returned something else. The next read tells more. Where
// replicas take turns, a write might be due each time when the same one was read last.
func (c *Campaign) lags() bool {
	return c.refused.void != nil && !c.k.again && same(c.k.base, c.refused.void)
}

// maxRefusals is how many are taken for the chance of a stale read.
const maxRefusals = 3

// checkRefusal looks at what a read has returned after a refusal.
func (c *Campaign) checkRefusal(e *RaceEntry) {
	r := &c.refused
	over := r.over
	if r.over = nil; over == nil {
		return
	}
	if !same(e, over) {
		r.count = 0
		return
	}
	if r.count++; r.count == maxRefusals {
		c.f.log(slog.LevelWarn, "the store refuses this candidate's writes as lost races, though nobody else writes: something between the two "+
			"changes what the condition is on (a proxy that weakens or strips ETags, as one that compresses does; a store that wants them quoted otherwise), "+
			"a policy refuses with the same code, or reads are stale", "id", c.cfg.LeaderID, "refused", r.count, "place", c.f.knownPlace())
	}
}
