package leaderelection

import (
	"errors"
	"time"
)

// wants reports whether this candidate would lead now.
func (c *Campaign) wants(now instant) bool {
	return !c.stopping && !c.health.sick && !c.clockWrong(now) && !c.keeping(now) && (now.mono >= c.cooldown || c.named())
}

// releasing reports whether the record is to be left vacant now: no callback of a
// leadership runs, and it is held for nothing.
func (c *Campaign) releasing(now instant) bool {
	return c.leadership == nil && c.holds(now) && !c.wants(now) && !c.keeping(now)
}

// keeping reports whether the record, which was taken too early, is held for the sake of
// the one from whom it was taken, whose view may be alive.
func (c *Campaign) keeping(now instant) bool { return now.mono < c.clock.keepUntil }

// named reports whether the record is reserved for this candidate by name: an
// operator's request, which ends its cooldown.
func (c *Campaign) named() bool {
	k := c.k.latest
	return k != nil && k.Vacant() && k.Successor == c.cfg.LeaderID
}

// hold extends the lease of a leadership in time, also while it drains.
func (c *Campaign) hold(wake *alarm, r *leadership) {
	if r.cause != nil && wake.now.mono >= r.drainUntil {
		return // the callbacks have had their time: let the view end
	}
	if !c.extendable(wake.now) {
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
		return
	}
	if c.k.unsure {
		c.f.read(wake, 0)
		return
	}
	due := r.confirmed + c.extendEvery(wake.now)
	if !c.announces(c.k.base) {
		due = min(due, r.confirmed+announceEvery)
	}
	due = max(due, c.writes.notBefore)
	if wake.now.mono < due {
		wake.at(due)
		return
	}
	if r.cause != nil || c.healthy(wake) {
		c.write(wake, OpExtend, c.extension(wake.now, r))
	}
}

// extendEvery is how long after a confirmed write of the lease the next is due: half as
// long for a term after a store call has failed, or was slow. An outage that announces
// itself then finds more left of the view.
func (c *Campaign) extendEvery(now instant) time.Duration {
	every := c.cfg.ExtendEvery
	if c.trouble > 0 && now.mono < c.trouble+c.cfg.TermLength {
		every /= 2
	}
	return every
}

// noteTrouble notes a store call of a leader that has failed or was slow: it has taken
// half of the time that it may take. A lost race is an answer like any other.
func (c *Campaign) noteTrouble(a *answer, now instant) {
	failed := a.err != nil && !errors.Is(a.err, ErrLostRace)
	if c.leadership != nil && (failed || now.mono-a.start.mono >= c.f.timeout/2) {
		c.trouble = now.mono
	}
}

// campaign follows the record, and claims it when that is allowed.
func (c *Campaign) campaign(wake *alarm) {
	if c.k.disputed {
		c.f.read(wake, 0)
		return
	}
	at := c.acquirableAt()
	if due, polling := c.f.pollDue(wake, &c.k); polling {
		if wake.now.mono >= max(due, c.f.reads.notBefore) {
			c.f.read(wake, due)
			return
		}
		wake.at(max(due, c.f.reads.notBefore))
	}
	if c.k.base == nil {
		return
	}
	if !at.reached(wake.now) {
		wake.until(at)
		c.prefer(wake)
		return
	}
	if !c.fresh(at) {
		// What was learned before the record was acquirable is read again.
		c.f.read(wake, 0)
		return
	}
	if !c.wants(wake.now) && wake.now.mono < c.cooldown {
		wake.at(c.cooldown)
	}
	if c.leadership != nil || !c.wants(wake.now) || c.lags() {
		return
	}
	if wake.now.mono < c.writes.notBefore {
		wake.at(c.writes.notBefore)
		return
	}
	if c.healthy(wake) {
		c.write(wake, OpAcquire, c.acquisition(wake.now))
	}
}

// fresh reports whether what is known of the record was learned when it was
// acquirable already, as it is since at. For a held record only a read counts; a
// vacancy may have been pushed.
func (c *Campaign) fresh(at deadline) bool {
	k := &c.k
	return !k.unsure && at.reached(k.baseAt) && k.baseAt.mono >= c.idleSince &&
		(k.base.Vacant() || at.reached(k.readAt))
}

// acquirableAt is from when the record may be acquired. Where
// an older record was read than is known (the store was set back, or the read is
// stale), both must be acquirable.
func (c *Campaign) acquirableAt() deadline {
	var at deadline
	for _, e := range []*RaceEntry{c.k.latest, c.k.base} {
		if e != nil {
			at = at.and(c.claimableAt(e))
		}
	}
	return at
}

func (c *Campaign) claimableAt(e *RaceEntry) deadline {
	switch {
	case e.Vacant() && e.Hold > 0:
	case e.Vacant() && (e.Successor == "" || e.Successor == AnySuccessor || e.Successor == c.cfg.LeaderID):
		return deadline{}
	case e.Vacant():
		return c.k.reservedUntil(e) // for another
	case e.Incarnation == c.incarnation:
		return deadline{}
	}
	return c.clock.late(c.k.heldUntil(e))
}

// holds reports whether the record is this campaign's own, though it does not lead
// by it, and its term has not run out: something that can be released. What is known
// counts as well as what was read last, which may be stale.
func (c *Campaign) holds(now instant) bool {
	return c.holdsBy(now, c.k.base) || c.holdsBy(now, c.k.latest)
}

// holdsBy says so of one state of the record. A clock that is wrong cannot tell whether
// the term is over.
func (c *Campaign) holdsBy(now instant, e *RaceEntry) bool {
	return e != nil && !e.Vacant() && e.Incarnation == c.incarnation && (!c.k.ends(e).reached(now) || c.clockFault(now) != nil)
}

// release leaves the record vacant, when no callback of the leadership is running. It writes
// over a record of its own only: an older one that was read is stale, or the store was
// set back, and then it may be another's by now.
func (c *Campaign) release(wake *alarm) {
	wake.until(c.k.ends(c.k.latest))
	switch b := c.k.base; {
	case c.k.unsure:
		c.f.read(wake, 0)
	case b.Vacant() || b.Incarnation != c.incarnation:
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
	case wake.now.mono < c.writes.notBefore:
		wake.at(c.writes.notBefore)
	default:
		c.write(wake, OpRelease, c.vacancy(wake.now))
	}
}
