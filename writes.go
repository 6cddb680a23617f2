package leaderelection

import (
	"errors"
	"log/slog"
)

// write makes a write of the given kind, and remembers it.
func (c *Campaign) write(wake *alarm, kind OpKind, e *RaceEntry) {
	c.health.fresh = false
	if k := c.health.check; k != nil {
		k.stale = true
	}
	if kind == OpAcquire {
		c.sitOut = 0 // over, or ended by an operator; a Resign from now on sets it anew
	}
	if kind != OpRelease {
		a := attempt{kind: kind, number: e.ElectionNumber, ext: e.Extension, expiry: e.TermExpiry, begun: wake.now, start: wake.now.mono}
		a.end = c.f.endAfter(wake.now, c.cfg.TermLength-c.cfg.MaxClockSkew, e.TermExpiry.Add(-c.cfg.MaxClockSkew))
		if c.cfg.Unsynchronized {
			// Its own clocks alone, as they are now.
			span := c.cfg.TermLength - c.cfg.MaxClockSkew
			a.end = c.f.endAfter(wake.now, span, wake.now.wall.Add(span))
			a.end.apart = max(drift(c.cfg.TermLength, c.cfg.MaxClockSkew), 1)
		}
		if r := c.reign; r != nil {
			// A term that the clock did not let grow ends when it would have.
			if e.TermExpiry.Equal(r.expiry) {
				a.end = r.end
			}
			r.expiry, r.end = a.expiry, a.end
		}
		if kind == OpAcquire {
			a.taken = c.takes(wake.now)
		}
		c.attempts.open = append(c.attempts.open, a)
	}
	c.f.begin(wake.now, kind, e, c.k.base)
	wake.at(c.f.call.deadline)
}

// acquisition is the record that begins a reign of one's own.
func (c *Campaign) acquisition(now instant) *RaceEntry {
	return &RaceEntry{
		LeaderID:         c.cfg.LeaderID,
		HostPort:         c.cfg.HostPort,
		ConnectionParams: c.cfg.ConnectionParams,
		TermExpiry:       now.wall.Add(c.cfg.TermLength).UTC(),
		TermLength:       c.cfg.TermLength,
		ElectionNumber:   c.maxSeen + 1,
		Incarnation:      c.incarnation,
		Unsynchronized:   c.cfg.Unsynchronized,
		Extra:            c.k.base.Extra,
		Token:            c.k.base.Token,
	}
}

// extension is the record that extends the reign r.
func (c *Campaign) extension(now instant, r *reign) *RaceEntry {
	e := c.acquisition(now)
	e.ElectionNumber = r.number
	e.Extension = c.nextExtension(r.number)
	if e.TermExpiry.Before(r.expiry) {
		e.TermExpiry = r.expiry
	}
	if c.cfg.Unsynchronized && e.TermExpiry.Equal(r.expiry) {
		e.TermExpiry = r.expiry.Add(1) // it says which write this is, not more
	}
	if s := c.k.base.Successor; s != c.cfg.LeaderID && c.own(c.k.base) {
		e.Successor = s // a wish stays on record until it is granted
	}
	return e
}

// vacancy is the record that releases one's own.
func (c *Campaign) vacancy(now instant) *RaceEntry {
	b := c.k.base
	e := &RaceEntry{
		TermExpiry:     now.wall.Add(-c.clock.check.Ahead(now.reading(), 0)).UTC(),
		TermLength:     c.cfg.TermLength,
		ElectionNumber: b.ElectionNumber,
		Extension:      c.nextExtension(b.ElectionNumber),
		Incarnation:    c.incarnation,
		Unsynchronized: c.cfg.Unsynchronized,
		Extra:          b.Extra,
		Token:          b.Token,
	}
	if s := b.Successor; s != "" && s != AnySuccessor && s != c.cfg.LeaderID {
		e.Successor = s
		e.TermExpiry = e.TermExpiry.Add(c.cfg.TermLength)
	}
	return e
}

// nextExtension is greater than every Extension known or asked for in a reign,
// so that no two records are alike.
func (c *Campaign) nextExtension(number ElectionNumber) uint64 {
	var top uint64
	for _, e := range []*RaceEntry{c.k.latest, c.k.base} {
		if e != nil && e.ElectionNumber == number {
			top = max(top, e.Extension)
		}
	}
	return max(top, c.attempts.greatest(number)) + 1
}

// own says whether e is of the current reign.
func (c *Campaign) own(e *RaceEntry) bool {
	r := c.reign
	return r != nil && !e.Vacant() && e.Incarnation == c.incarnation && e.ElectionNumber == r.number
}

// extendable says whether the record that a read returned may be overwritten by
// an extension. That is so where it is one's own, and where a store that was set
// back holds something that anybody could claim; never where another may lead by
// it.
func (c *Campaign) extendable(now instant) bool {
	b := c.k.base
	return b.Incarnation == c.incarnation || c.claimableAt(b).reached(now)
}

// answered takes in what a store call led to, or that it was given up.
func (c *Campaign) answered(a *answer, now instant) {
	switch {
	case a.kind == OpRead:
		c.readAnswered(a, now)
	case a.err == nil:
		c.wrote(a, now)
	case a.abandoned && !a.givenUp: // its outcome is an open question already
	default:
		c.writeFailed(a, now)
	}
}

// readAnswered takes in what a read has returned.
func (c *Campaign) readAnswered(a *answer, now instant) {
	switch {
	case a.err != nil:
		return
	case a.abandoned: // later calls may have told more since: news, if it is any
		c.learn(a.got, a.start, now, wasPushed)
		return
	}
	c.f.feedCheck(&c.k, a.got, now)
	c.learn(a.got, a.start, now, wasRead)
	if c.reign == nil && c.stopping && c.f.hanging == 0 {
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
	if a.kind == OpRelease && c.sitOut > now.mono {
		c.sitOut = now.mono + c.cfg.TermLength
	}
	c.learn(e, a.start, now, wasWritten)
}

// writeFailed takes in that the outcome of a write is open: that is asked before any
// other. A lost race may bring the answer along.
func (c *Campaign) writeFailed(a *answer, now instant) {
	c.k.unsure = true
	c.writes.failed(a.start.mono)
	if !errors.Is(a.err, ErrLostRace) {
		c.refused.over = nil
		c.f.reads.notBefore = max(c.f.reads.notBefore, c.writes.notBefore)
		return
	}
	c.refused.over = a.over
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
	count int
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
			"a policy refuses with the same code, or reads are stale", "id", c.cfg.LeaderID, "refused", r.count, "place", placeOf(c.f.decider))
	}
}

// learn takes in a record, however it was learned, and works out what it means for this
// candidate. It was the record at the instant at.
func (c *Campaign) learn(e *RaceEntry, at, now instant, how source) {
	news := c.k.learn(e, at, now, how)
	if news {
		c.f.tellNews(e)
	}
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
	if r := c.reign; r != nil && !r.over {
		c.recogniseLeading(now, r, e, news, how)
	} else if how != wasPushed && e.Incarnation == c.incarnation && !e.Vacant() && e.Compare(c.k.latest) >= 0 {
		c.recogniseOwn(now, e)
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

// recogniseLeading: a confirmation, a wish, a loss, or old news.
func (c *Campaign) recogniseLeading(now instant, r *reign, e *RaceEntry, news bool, how source) {
	switch {
	case c.own(e):
		if a := c.attempts.match(e); how != wasPushed && a != nil && a.start >= r.confirmed {
			c.confirm(now, r, a, e.Extension)
		}
		if news && e.Successor != "" && e.Successor != c.cfg.LeaderID {
			c.giveUp(now, ErrResigned)
		}
	case news, e.ElectionNumber == r.number && e.Incarnation != c.incarnation:
		// A newer record of another, or one that bears the same number.
		c.endReign(now, ErrOusted)
	}
}

// confirm moves the view on to the end that goes with a.
func (c *Campaign) confirm(now instant, r *reign, a *attempt, extension uint64) {
	left := r.view.Get().Sub(now.wall)
	if !r.view.moveOn(a.end) {
		c.endReign(now, ErrExpired)
		return
	}
	r.confirmed, c.f.wrote = a.start, true
	c.extended(now, r, extension, left)
}

// recogniseOwn: a record of this Incarnation while no view is alive. It begins a
// reign if it is an acquisition that this campaign is waiting for.
func (c *Campaign) recogniseOwn(now instant, e *RaceEntry) {
	a := c.attempts.match(e)
	if c.reign != nil || a == nil || a.kind != OpAcquire {
		return
	}
	if e.Successor != "" && e.Successor != c.cfg.LeaderID {
		// Asked to hand over before it began: released without a reign.
		c.sitOut = now.mono + c.cfg.TermLength
	}
	c.keepIfEarly(a, commitTS(e.Token))
	if c.wants(now) {
		c.beginReign(now, a)
	}
}

// tellChange hands new reigns and vacancies to LeaderChanged.
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
		c.f.log(slog.LevelInfo, "vacant", "id", c.cfg.LeaderID, "election", uint64(e.ElectionNumber), "successor", e.Successor)
	case e.Incarnation != c.incarnation:
		c.f.log(slog.LevelInfo, "another leads", "id", c.cfg.LeaderID, "leader", e.LeaderID, "election", uint64(e.ElectionNumber), "until", e.TermExpiry)
	}
	if c.cfg.LeaderChanged != nil {
		c.changed.add(delivery{entry: e, call: c.cfg.LeaderChanged})
	}
}

// double remembers what was seen of other processes under this LeaderID.
type double struct {
	seen     bool
	reported ElectionNumber
}

// checkDouble reports another live process under this candidate's LeaderID. The
// record that a campaign finds at its start may be its own former process's; one
// that grows later is not.
func (c *Campaign) checkDouble(e *RaceEntry) {
	d := &c.doubles
	first := !d.seen
	d.seen = true
	if e.LeaderID != c.cfg.LeaderID || e.Incarnation == c.incarnation {
		return
	}
	if first || d.reported == e.ElectionNumber {
		return
	}
	d.reported = e.ElectionNumber
	c.f.log(slog.LevelError, "another process uses this candidate's LeaderID: give each its own", "id", c.cfg.LeaderID, "election", uint64(e.ElectionNumber), "incarnation", e.Incarnation)
	if t := c.cfg.Trace; t != nil && t.DuplicateID != nil {
		entry := e.Clone()
		c.f.events.add(func() { t.DuplicateID(*entry) })
	}
}
