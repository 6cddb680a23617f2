package leaderelection

import (
	"errors"
	"log/slog"
	"time"
)

// attempt is a write of one's own whose outcome may still be open. That it
// happened is shown by a record of this Incarnation with its TermExpiry.
type attempt struct {
	kind   OpKind
	number ElectionNumber
	ext    uint64
	expiry time.Time
	begun  instant
	start  time.Duration
	end    *viewState // where the view ends, once it is confirmed
	taken  taken      // what an acquisition takes from others
}

// acquiring says whether an acquisition's outcome is open.
func (c *Campaign) acquiring() bool {
	for _, a := range c.attempts {
		if a.kind == OpAcquire {
			return true
		}
	}
	return false
}

// forgetOld drops the acquisitions that can no longer begin a reign: should one
// still land, the record is one's own and is dealt with as such.
func (c *Campaign) forgetOld(wake *alarm) {
	kept := c.attempts[:0]
	for _, a := range c.attempts {
		if old := a.start + c.cfg.TermLength; a.kind != OpAcquire || wake.now.mono < old {
			kept = append(kept, a)
			if a.kind == OpAcquire {
				wake.at(old)
			}
		}
	}
	c.attempts = kept
}

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
		c.attempts = append(c.attempts, a)
	}
	c.f.begin(wake.now, kind, e)
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
		Extra:            c.f.base.Extra,
		Token:            c.f.base.Token,
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
	if s := c.f.base.Successor; s != c.cfg.LeaderID && c.own(c.f.base) {
		e.Successor = s // a wish stays on record until it is granted
	}
	return e
}

// vacancy is the record that releases one's own.
func (c *Campaign) vacancy(now instant) *RaceEntry {
	b := c.f.base
	e := &RaceEntry{
		TermExpiry:     now.wall.Add(-c.suspected(now, 0)).UTC(),
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
	for _, e := range []*RaceEntry{c.f.known, c.f.base} {
		if e != nil && e.ElectionNumber == number {
			top = max(top, e.Extension)
		}
	}
	for _, a := range c.attempts {
		if a.number == number {
			top = max(top, a.ext)
		}
	}
	return top + 1
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
	b := c.f.base
	return b.Incarnation == c.incarnation || c.claimableAt(b).reached(now)
}

// answered takes in what a store call led to, or that it was given up.
func (c *Campaign) answered(a *answer) {
	if a.kind == OpRead {
		c.doneReading(a)
		return
	}
	if a.err == nil {
		c.writes.worked()
		c.refused = refusals{}
		if !a.abandoned {
			c.f.unsure = false
		}
		e := a.entry // nobody keeps it: it is the record now
		e.Token = a.token
		if a.kind == OpRelease && c.sitOut > a.now.mono {
			c.sitOut = a.now.mono + c.cfg.TermLength
		}
		c.f.learn(e, a.start, wasWritten)
		return
	}
	if a.abandoned && !a.givenUp {
		return // its outcome is an open question already
	}
	c.f.unsure = true
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
		c.f.unsure, c.f.readAt = false, a.start
		c.f.learn(lost.Current, a.start, wasRead)
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

// doneReading closes the question of an acquisition that a read did not find: if
// it has not happened by now, it is no longer awaited.
func (c *Campaign) doneReading(a *answer) {
	if a.err != nil || a.abandoned || c.reign != nil || !c.stopping || c.f.hanging > 0 {
		return
	}
	c.attempts = nil
}

// recognise works out what a record means for this candidate. Every record
// passes through here, whether read, pushed or written; c.f.known is already the
// newest one.
func (c *Campaign) recognise(e *RaceEntry, at instant, how source) {
	now := c.f.now()
	if how == wasRead {
		c.checkRefusal(e)
	}
	c.maxSeen = max(c.maxSeen, e.ElectionNumber)
	news := e == c.f.known
	if how == wasPushed {
		c.askAbout(e, news)
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
	} else if how != wasPushed && e.Incarnation == c.incarnation && !e.Vacant() && e.Compare(c.f.known) >= 0 {
		c.recogniseOwn(now, e)
	}
	if how != wasPushed {
		c.prune(e)
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

// askAbout: a feed may tell of what its store has not committed and will undo, so a
// pushed record decides nothing. One that bears an open write of one's own is a
// reason to read at once, and not to wait for what the last failure costs.
func (c *Campaign) askAbout(e *RaceEntry, news bool) {
	if !news {
		return // told before
	}
	for i := range c.attempts {
		if a := &c.attempts[i]; a.led(e) && e.Incarnation == c.incarnation {
			c.f.unsure, c.f.reads.notBefore = true, 0
		}
	}
}

// recogniseLeading: a confirmation, a wish, a loss, or old news.
func (c *Campaign) recogniseLeading(now instant, r *reign, e *RaceEntry, news bool, how source) {
	switch {
	case c.own(e):
		for _, a := range c.attempts {
			if how != wasPushed && a.number == r.number && a.expiry.Equal(e.TermExpiry) && a.start >= r.confirmed {
				c.confirm(now, r, a, e.Extension)
				break
			}
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
func (c *Campaign) confirm(now instant, r *reign, a attempt, extension uint64) {
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
	if c.reign != nil {
		return
	}
	for _, a := range c.attempts {
		if a.kind != OpAcquire || a.number != e.ElectionNumber || !a.expiry.Equal(e.TermExpiry) {
			continue
		}
		if e.Successor != "" && e.Successor != c.cfg.LeaderID {
			// Asked to hand over before it began: released without a reign.
			c.sitOut = now.mono + c.cfg.TermLength
		}
		c.keepIfEarly(a, commitTS(e.Token))
		if c.wants(now) {
			c.beginReign(now, a)
		}
		return
	}
}

// prune forgets the attempts that e, which was read or written, has decided: what was
// asked for before it has happened, or will not.
func (c *Campaign) prune(e *RaceEntry) {
	kept := c.attempts[:0]
	for _, a := range c.attempts {
		if a.number > e.ElectionNumber || a.number == e.ElectionNumber && a.ext > e.Extension {
			kept = append(kept, a)
		} else if a.led(e) && !c.clock.last.led(e) {
			c.clock.last = a
		}
	}
	c.attempts = kept
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
