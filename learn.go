package leaderelection

import (
	"errors"
	"log/slog"
)

// learn takes in a record, however it was learned, and works out what it means for this candidate.
// It was the record at the instant at.
func (c *Campaign) learn(e *RaceEntry, at, now instant, how source) {
	news := c.k.learn(e, at, now, how)
	if news {
		c.f.tellNews(e)
	}
	c.diagnosis.look(e, &c.k, now, news, how, c.attempts.wrote(e))
	if how == wasRead {
		c.refused.check(e, &c.diagnosis)
	}
	c.maxSeen = max(c.maxSeen, e.ElectionNumber)
	if how == wasWritten && c.clock.readsBack(e, c.attempts.match(e)) {
		c.k.unsure, how = true, wasPushed // it begins no more than what a feed tells of
	}
	switch mine := c.attempts.match(e) != nil; {
	case news && mine && how == wasPushed:
		// A feed may report what its store has not committed and will undo, so a pushed
		// record decides nothing. If it shows an open write of this campaign, that is a
		// reason to read at once, without the pause after the last failure.
		c.k.unsure = true
		c.f.reads.hurry()
	case news, mine && how != wasPushed:
		// This record explains the failed write: it landed after all, or lost against a
		// newer one. There is no reason to pause. That this candidate may write is shown
		// only by a record of its own.
		c.writes.worked()
		if c.attempts.wrote(e) {
			c.f.calls.Worked(now.mono, OpAcquire.does())
		}
	}
	c.clock.observe(e, c.attempts.origin(e), now)
	c.endWrong(now)
	if r := c.leadership; r != nil && !r.over {
		c.observeLeading(now, r, e, news, how)
	} else if c.attempts.wrote(e) && (e.Compare(c.k.latest) >= 0 || oneTerm(e, c.k.latest)) {
		c.observeOwn(now, e, how)
	}
	if how != wasPushed {
		c.attempts.settle(e)
	}
	if !news {
		return
	}
	c.leader.Store(e)
	c.proofs.watch(e)
	c.tellChange(e)
}

// observeLeading takes in a record while leading. It may be a confirmation, a request to hand over,
// a loss, or old news.
func (c *Campaign) observeLeading(now instant, r *leadership, e *RaceEntry, news bool, how source) {
	switch {
	case c.own(e):
		if a := c.attempts.match(e); how != wasPushed && a != nil {
			c.confirm(now, r, a, e.Extension)
		}
		if news && e.Successor != "" && e.Successor != c.cfg.LeaderID {
			if r.cause == nil {
				c.f.log(slog.LevelInfo, "asked to hand over", "id", c.cfg.LeaderID, "token", uint64(r.number), "to", e.Successor)
			}
			c.giveUp(now, ErrResigned)
		}
	case news, e.ElectionNumber == r.number && !(e.Vacant() && e.Incarnation == r.incarnation):
		// A newer record of another candidate, or a record with the same number.
		c.endLeadership(now, ErrOusted)
	}
}

// confirm moves the view on to the end that goes with a.
func (c *Campaign) confirm(now instant, r *leadership, a *attempt, extension uint64) {
	left := r.view.Get().Sub(now.wall)
	if !r.view.moveOn(a.end) {
		c.endLeadership(now, ErrExpired)
		return
	}
	r.confirmed = a.begun.mono
	r.extended(extension, left)
}

// observeOwn takes in a record of this Incarnation while no view is alive. If it is an acquisition
// for which this campaign waits, it begins a leadership. If an operator has asked for a hand-over,
// which a feed may have reported already, the record is released instead, and not claimed again.
func (c *Campaign) observeOwn(now instant, e *RaceEntry, how source) {
	a := c.attempts.match(e)
	acquired := how != wasPushed && c.leadership == nil && a != nil && a.kind == OpAcquire
	if acquired {
		c.clock.keepIfEarly(a, commitTS(e.Token))
	}
	if s := c.k.latest.Successor; s != "" && s != c.cfg.LeaderID && c.holds(now) {
		c.cooldown = max(now.mono, c.clock.keepUntil) + c.cfg.TermLength
	}
	if acquired && c.wants(now) {
		c.beginLeadership(now, a)
	}
}

// answered takes in the answer to a store call, or that the call was given up.
func (c *Campaign) answered(a *answer, now instant) {
	c.noteTrouble(a, now)
	switch {
	case a.kind == OpRead:
		c.readAnswered(a, now)
	case a.err == nil:
		c.wrote(a, now)
	case a.abandoned && !a.givenUp: // its outcome is an open question already
		if c.stopping && c.leadership == nil {
			c.k.unsure = true // the record may have changed since it was read
		}
	default:
		c.writeFailed(a, now)
	}
}

// readAnswered takes in the answer to a read.
func (c *Campaign) readAnswered(a *answer, now instant) {
	switch {
	case a.err != nil:
		c.single.failed(a.err)
		return
	case a.abandoned: // later calls may have shown more: it may be news, not a proof
		c.learn(a.got, a.start, now, wasPushed)
		return
	}
	c.clock.blind = a.got.ElectionNumber != NoElections && commitTS(a.got.Token).IsZero()
	c.f.feedCheck(&c.k, a.got, now)
	c.learn(a.got, a.start, now, wasRead)
	if c.leadership == nil && c.stopping && c.f.hanging == 0 {
		c.attempts.giveUp() // a write that has not happened by now is no longer awaited
	}
}

// wrote takes in that a write has happened.
func (c *Campaign) wrote(a *answer, now instant) {
	c.writes.worked()
	c.refused = refusals{}
	if !a.abandoned {
		c.k.unsure = false
	}
	e := a.entry // nobody else keeps it: it is the record now
	e.Token = a.token
	if a.kind == OpRelease && !c.proofs.died(a.over) && c.cooldown > now.mono {
		c.cooldown = now.mono + c.cfg.TermLength
	}
	c.learn(e, a.start, now, wasWritten)
	if a.kind == OpRelease {
		c.proofs.bury(&c.k)
	}
}

// writeFailed takes in that the outcome of a write is open. A read must settle that before any
// other write. A lost race may bring the current record along, which settles it.
func (c *Campaign) writeFailed(a *answer, now instant) {
	lostRace := errors.Is(a.err, ErrLostRace) // the store works
	c.k.unsure = true
	c.writes.failed(a.start.mono, c.f.owns || lostRace)
	c.single.failed(a.err)
	if !lostRace {
		asks := c.writes.notBefore
		if !c.f.owns { // what became of the write does not wait as long as the next one
			asks = min(asks, a.start.mono+2*c.writes.base)
		}
		c.f.reads.notBefore = max(c.f.reads.notBefore, asks)
		return
	}
	c.refused.over, c.refused.void = a.over, a.over
	var lost *LostRaceError
	if errors.As(a.err, &lost) && lost.Current != nil {
		if err := lost.Current.damaged(); err != nil {
			c.f.calls.Failed(now.mono, a.kind.does(), "the record that refused a write cannot be used", "err", err)
			return
		}
		c.learn(lost.Current, a.start, now, wasRead)
	}
}

// tellChange calls LeaderChanged for new leaderships and vacancies.
func (c *Campaign) tellChange(e *RaceEntry) {
	if e.ElectionNumber == NoElections || c.ending {
		return
	}
	if t := c.told; t != nil && t.ElectionNumber == e.ElectionNumber && t.LeaderID == e.LeaderID && (e.Vacant() || t.Incarnation == e.Incarnation) {
		return
	}
	c.told = e
	switch {
	case e.Vacant():
		args := []any{"id", c.cfg.LeaderID, "token", uint64(e.ElectionNumber), "successor", e.Successor}
		if e.Hold > 0 {
			args = append(args, "hold_until", e.TermExpiry.Add(min(e.Hold, MaxTermLength)))
		}
		c.f.log(slog.LevelInfo, "vacant", args...)
	case !c.attempts.wrote(e):
		c.f.log(slog.LevelInfo, "another leads", "id", c.cfg.LeaderID, "leader", e.LeaderID, "token", uint64(e.ElectionNumber), "until", e.TermExpiry)
	}
	if c.cfg.LeaderChanged != nil {
		c.changed.deliver(delivery{entry: e, call: c.cfg.LeaderChanged})
	}
}
