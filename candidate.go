package leaderelection

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// wants reports whether this candidate is ready to lead now.
func (c *Campaign) wants(now instant) bool {
	return !c.stopping && !c.health.sick && (now.mono >= c.cooldown || c.named())
}

// named reports whether the record is reserved for this candidate by name. That is an operator's
// request, and ends the candidate's cooldown.
func (c *Campaign) named() bool {
	k := c.l.newest.of
	return k != nil && k.Vacant() && k.Successor == c.cfg.LeaderID
}

// wish is what this campaign would like of its lease now.
func (c *Campaign) wish(now instant) wish {
	r := c.leadership
	w := wish{lead: c.wants(now), work: r != nil && c.l.lead == nil}
	if r == nil || r.over {
		return w
	}
	// Work that winds down has DrainTimeout; then the view ends. If no work runs, for nobody is the lease kept.
	w.keep = r.cause == nil || now.mono < r.drainUntil && r.busy()
	w.extend = c.extendEvery(now)
	if !c.announces(c.l.base.of) {
		w.extend = min(w.extend, announceEvery)
	}
	return w
}

// releasing reports whether this campaign gives its record back now.
func (c *Campaign) releasing(now instant) bool {
	return c.leadership == nil && c.l.leaving(c.wish(now)) && c.owns() && c.l.holds(now)
}

// owns reports whether the newest state of the record that is proved is this campaign's own.
func (c *Campaign) owns() bool { return c.l.mine(c.l.proved) }

// extendEvery returns how long after a confirmed write of the lease the next is due. For a term
// after a store call has failed or was slow, it is half as long. So if that was the beginning of an
// outage, more is left of the view.
func (c *Campaign) extendEvery(now instant) time.Duration {
	every := c.cfg.ExtendEvery
	if c.trouble > 0 && now.mono < c.trouble+c.cfg.TermLength {
		every /= 2
	}
	return every
}

// noteTrouble notes that a leader's store call has failed, or has taken half of the time that it
// may take. A lost race is an answer like any other.
func (c *Campaign) noteTrouble(a *answer, now instant) {
	failed := a.err != nil && !errors.Is(a.err, ErrLostRace)
	if c.leadership != nil && (failed || now.mono-a.start.mono >= c.timeout/2) {
		c.trouble = now.mono
	}
}

// act makes the one store call that is due, if any.
func (c *Campaign) act(wake *alarm) {
	if c.observer != nil {
		c.observer.act(wake)
		return
	}
	c.weigh(wake.now)
	wish := c.wish(wake.now)
	c.l.wake(wake, wish)
	wake.later(c.cooldown)
	if !c.mayCall(wake) {
		return
	}
	kind := c.l.next(wake.now, wish)
	if turn := c.turn(wake.now, kind); wake.now.mono < turn {
		wake.at(turn)
		return
	}
	switch {
	case kind == OpRead:
		c.read(wake, max(c.readDue(), c.reads.Floor()))
	case kind != "" && c.mayWrite(wake, kind):
		c.write(wake, kind)
	case c.leadership == nil && !c.stopping:
		c.poll(wake)
	}
}

// readDue returns when a read that the lease asks for may begin. What became of a write is asked at once. A
// read that comes before a write that must wait is as late as that. If a read did not bring what
// the lease has asked for, the next has a pause.
func (c *Campaign) readDue() time.Duration {
	switch {
	case c.l.unsure || c.l.base.of == nil:
		return 0
	case c.reread:
		return max(c.writes.NotBefore, c.lastRead+c.reads.Base)
	}
	c.reread = true
	return c.writes.NotBefore
}

// mayWrite reports whether a write of the given kind may begin now.
func (c *Campaign) mayWrite(wake *alarm, kind OpKind) bool {
	if wake.now.mono < c.writes.NotBefore {
		wake.at(c.writes.NotBefore)
		return false
	}
	draining := c.leadership != nil && c.leadership.cause != nil
	return kind == OpRelease || draining || c.health.allows(wake)
}

// poll reads the record if no feed tells of it. If reads take longer than PollInterval, another is always due.
func (c *Campaign) poll(wake *alarm) {
	if c.call != nil {
		return
	}
	if due, polling := c.pollDue(wake); polling {
		c.read(wake, due)
	}
}

// write makes a write of the given kind.
func (c *Campaign) write(wake *alarm, kind OpKind) {
	c.health.spend()
	c.reread = false
	if kind == OpAcquire {
		c.single.claimed = true
		c.cooldown = 0 // over, or ended by an operator; a Resign from now on sets it again
	}
	over := c.l.base.of
	e := c.l.issue(wake.now, kind, rand.Text()[:13], rand.Text()) // 65 bits and 130 bits
	if kind != OpRelease {
		c.proofs.live(e.Incarnation)
	}
	c.begin(wake.now, kind, e, over)
	wake.at(c.call.deadline)
}

// learn takes in a record, however it was learned, and follows what it means for this candidate. The call that
// showed it began at the instant began.
func (c *Campaign) learn(e *RaceEntry, began, now instant, how source) {
	if c.observer != nil {
		c.observer.learn(e, began, now, how)
		return
	}
	w := c.l.origin(e)
	mine, open := w != nil, w != nil && !w.done
	news := c.l.learn(e, how, began, now)
	if news {
		c.tellEntry(c.cfg.Trace.News, e)
	}
	c.diagnosis.look(e, &c.l.claims, now, news, how, mine)
	if how == wasRead {
		c.refused.check(e, &c.diagnosis)
	}
	switch {
	case news && mine && how == wasPushed:
		// It shows a write whose answer is not here: a reason to read at once, without the pause after the
		// last failure.
		c.reads.Hurry()
	case news, open && how != wasPushed:
		// This record explains the failed write: it landed after all, or lost against a
		// newer one. There is no reason to pause. That this candidate may write is shown
		// only by a record of its own.
		c.writes.Worked()
		if mine {
			c.outage.Worked(now.mono, OpAcquire.does())
		}
	}
	if s := c.l.newest.of.Successor; c.leadership == nil && mine && s != "" && s != c.cfg.LeaderID && c.l.holds(now) {
		c.cooldown = now.mono + c.cfg.TermLength // an operator has asked for a hand-over before it began
	}
	c.follow(now)
	if c.leader.Load() == nil && c.l.end(c.l.newest).reached(now) {
		c.awaited = e // nobody else learns of it now: it is this candidate's turn
	}
	before := c.leader.Swap(c.l.newest.of)
	if !news {
		return
	}
	c.proofs.watch(e)
	c.tellChange(before, e)
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
			c.l.open(nil) // the record may have changed since it was read
		}
	case a.kind == OpRead && a.err != nil:
		c.single.err = a.err
	case a.kind == OpRead:
		c.feedCheck(a.got, now)
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
	c.writes.Worked()
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
	c.l.open(nil)
	c.writes.Failed(a.start.mono, c.keeps || lostRace)
	c.single.err = a.err
	if !lostRace {
		asks := c.writes.NotBefore
		if !c.keeps { // what became of the write does not wait as long as the next one
			asks = min(asks, a.start.mono+2*c.writes.Base)
		}
		c.reads.NotBefore = max(c.reads.NotBefore, asks)
		return
	}
	c.refused.over = a.over
	c.l.open(a.over)
	var lost *LostRaceError
	if errors.As(a.err, &lost) && lost.Current != nil {
		current := lost.Current.Clone()
		if err := current.damaged(); err != nil {
			c.outage.Failed(now.mono, a.kind.does(), "the record that refused a write cannot be used", "err", err)
			return
		}
		c.learn(current, a.start, now, wasRead)
	}
}

// announceEvery is how soon after the last extension another may follow for an announcement. Some
// stores take one write a second for each object.
const announceEvery = time.Second

// Announce replaces the HostPort and the ConnectionParams of this candidate, both: nil removes
// them. Use it when the address of a candidate changes while it leads: its leadership goes on. A
// leader makes one extension for it, at once or a second after its last extension, whichever is
// later. Observers then see the change. The change also applies to later leaderships. If Announce
// is called again before the extension, only the newest call counts.
//
// Announce refuses what Config refuses, with an ErrConfig, and then changes nothing. It does not
// wait for the store: nil means that the campaign will write the change if it still leads.
func (c *Campaign) Announce(hostPort []string, params []byte) error {
	if faults := checkAnnouncement(hostPort, params); faults != nil {
		return fmt.Errorf("leaderelection: Announce: %w", wrong(faults))
	}
	hostPort, params = slices.Clone(hostPort), slices.Clone(params)
	c.post(func(instant) { c.l.hostPort, c.l.params = hostPort, params })
	return nil
}

// announces reports whether the record e has this candidate's HostPort and ConnectionParams.
func (c *Campaign) announces(e *RaceEntry) bool {
	return slices.Equal(e.HostPort, c.l.hostPort) && bytes.Equal(e.ConnectionParams, c.l.params)
}

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
