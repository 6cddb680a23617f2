package leaderelection

import "log/slog"

// learn takes in a record, however it was learned, and works out what it means for this
// candidate. It was the record at the instant at.
func (c *Campaign) learn(e *RaceEntry, at, now instant, how source) {
	news := c.k.learn(e, at, now, how)
	if news {
		c.f.tellNews(e)
	}
	c.f.checkSetBack(e, &c.k, now, how)
	if how == wasRead {
		c.checkRefusal(e)
	}
	c.maxSeen = max(c.maxSeen, e.ElectionNumber)
	if how == wasPushed && news && c.attempts.match(e) != nil {
		// A feed may tell of what its store has not committed and will undo, so a
		// pushed record decides nothing. One that bears an open write of one's own is a
		// reason to read at once, and not to wait for what the last failure costs.
		c.k.unsure = true
		c.f.reads.hurry()
	}
	if news && (how != wasPushed || e.Incarnation != c.incarnation) {
		// A newer record explains the write that failed: it landed after all,
		// or lost against this one. There is no reason to pause.
		c.writes.worked()
	}
	c.checkStamp(e, now)
	c.endWrong(now, c.clockFault(now))
	if r := c.leadership; r != nil && !r.over {
		c.observeLeading(now, r, e, news, how)
	} else if e.Incarnation == c.incarnation && !e.Vacant() && (e.Compare(c.k.latest) >= 0 || oneTerm(e, c.k.latest)) {
		c.observeOwn(now, e, how)
	}
	if how != wasPushed {
		c.attempts.settle(e)
	}
	if !news {
		return
	}
	c.leader.Store(e)
	c.tellChange(e)
	c.checkDouble(e)
	if err := tooFar(e, now.wall, c.cfg.MaxClockSkew); err != nil && !c.cfg.Unsynchronized {
		c.f.log(slog.LevelWarn, "clocks disagree", "err", err)
	}
}

// observeLeading: a confirmation, a request, a loss, or old news.
func (c *Campaign) observeLeading(now instant, r *leadership, e *RaceEntry, news bool, how source) {
	switch {
	case c.own(e):
		if a := c.attempts.match(e); how != wasPushed && a != nil && a.start >= r.confirmed {
			c.confirm(now, r, a, e.Extension)
		}
		if news && e.Successor != "" && e.Successor != c.cfg.LeaderID {
			if r.cause == nil {
				c.f.log(slog.LevelInfo, "asked to hand over", "id", c.cfg.LeaderID, "election", uint64(r.number), "to", e.Successor)
			}
			c.giveUp(now, ErrResigned)
		}
	case news, e.ElectionNumber == r.number && e.Incarnation != c.incarnation:
		// A newer record of another, or one that bears the same number.
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
	r.confirmed = a.start
	c.extended(now, r, extension, left)
}

// observeOwn: a record of this Incarnation while no view is alive. It begins a
// leadership if it is an acquisition that this campaign is waiting for. If an operator has
// asked to hand over, of which a feed may have told already, it is released instead, and
// not claimed again.
func (c *Campaign) observeOwn(now instant, e *RaceEntry, how source) {
	a := c.attempts.match(e)
	acquired := how != wasPushed && c.leadership == nil && a != nil && a.kind == OpAcquire
	if acquired {
		c.keepIfEarly(a, commitTS(e.Token))
	}
	if s := c.k.latest.Successor; s != "" && s != c.cfg.LeaderID && c.holds(now) {
		c.cooldown = max(now.mono, c.clock.keepUntil) + c.cfg.TermLength
	}
	if acquired && c.wants(now) {
		c.beginLeadership(now, a)
	}
}
