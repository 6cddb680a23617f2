package leaderelection

import (
	"errors"
	"log/slog"
)

// learn takes in a record, however it was learned, and follows what it means for this candidate. The call that
// showed it began at the instant began.
func (c *Campaign) learn(e *RaceEntry, began, now instant, how source) {
	w := c.l.origin(e)
	mine, open := w != nil, w != nil && !w.done
	news := c.l.learn(e, how, began, now)
	if news {
		c.f.tellNews(e)
	}
	c.diagnosis.look(e, &c.l.claims, now, news, how, mine)
	if how == wasRead {
		c.refused.check(e, &c.diagnosis)
	}
	switch {
	case news && mine && how == wasPushed:
		// It shows a write whose answer is not here: a reason to read at once, without the pause after the
		// last failure.
		c.f.reads.hurry()
	case news, open && how != wasPushed:
		// This record explains the failed write: it landed after all, or lost against a
		// newer one. There is no reason to pause. That this candidate may write is shown
		// only by a record of its own.
		c.writes.worked()
		if mine {
			c.f.calls.Worked(now.mono, OpAcquire.does())
		}
	}
	if s := c.l.newest.of.Successor; c.leadership == nil && mine && s != "" && s != c.cfg.LeaderID && c.l.holds(now) {
		c.cooldown = now.mono + c.cfg.TermLength // an operator has asked for a hand-over before it began
	}
	c.follow(now)
	if !news {
		return
	}
	c.leader.Store(e)
	c.proofs.watch(e)
	c.tellChange(e)
}

// answered takes in the answer to a store call, or that the call was given up.
func (c *Campaign) answered(a *answer, now instant) {
	c.noteTrouble(a, now)
	if a.kind != OpRead {
		c.wroteAt = now.mono
	}
	switch {
	case a.abandoned && !a.givenUp: // later calls may have shown more: it may be news, not a proof
		if a.err == nil {
			c.learn(a.shown(), a.start, now, wasPushed)
		} else if a.kind != OpRead {
			c.l.open() // the record may have changed since it was read
		}
	case a.kind == OpRead && a.err != nil:
		c.single.failed(a.err)
	case a.kind == OpRead:
		c.f.feedCheck(&c.l.claims, a.got, now)
		c.learn(a.got, a.start, now, wasRead)
	case a.err == nil:
		c.wrote(a, now)
	default:
		c.writeFailed(a, now)
	}
}

// shown returns the record that the answer shows.
func (a *answer) shown() *RaceEntry {
	if a.kind == OpRead {
		return a.got
	}
	a.entry.Token = a.token // nobody else keeps it: it is the record now
	return a.entry
}

// wrote takes in that a write has happened.
func (c *Campaign) wrote(a *answer, now instant) {
	c.writes.worked()
	c.refused = refusals{}
	if a.kind == OpRelease && c.cooldown > now.mono {
		c.cooldown = now.mono + c.cfg.TermLength
	}
	c.learn(a.shown(), a.start, now, wasWritten)
	if a.kind == OpRelease {
		c.proofs.bury()
	}
}

// writeFailed takes in that the outcome of a write is open. A read must settle that before any
// other write. A lost race may bring the current record along, which settles it.
func (c *Campaign) writeFailed(a *answer, now instant) {
	lostRace := errors.Is(a.err, ErrLostRace) // the store works
	c.l.open()
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
	c.refused.over = a.over
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
	case !c.l.mine(e):
		c.f.log(slog.LevelInfo, "another leads", "id", c.cfg.LeaderID, "leader", e.LeaderID, "token", uint64(e.ElectionNumber), "until", e.TermExpiry)
	}
	if c.cfg.LeaderChanged != nil {
		c.changed.deliver(delivery{entry: e, call: c.cfg.LeaderChanged})
	}
}
