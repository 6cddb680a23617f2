package leaderelection

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"time"
	"unicode/utf8"
)

// wants reports whether this candidate is ready to lead now.
func (c *Campaign) wants(now instant) bool {
	return !c.stopping && !c.health.sick && !c.clock.wrong(now) && !c.keeping(now) && (now.mono >= c.cooldown || c.named())
}

// releasing reports whether to release the record now: this campaign holds it, does not lead, and
// no callback of a leadership runs.
func (c *Campaign) releasing(now instant) bool {
	return c.leadership == nil && c.holds(now) && !c.wants(now) && !c.keeping(now)
}

// keeping reports whether the record must be kept unused. It was taken too early, and the view of
// the leader that had it may be alive.
func (c *Campaign) keeping(now instant) bool { return now.mono < c.clock.keepUntil }

// named reports whether the record is reserved for this candidate by name. That is an operator's
// request, and ends the candidate's cooldown.
func (c *Campaign) named() bool {
	k := c.k.latest
	return k != nil && k.Vacant() && k.Successor == c.cfg.LeaderID
}

// hold extends the lease of a leadership in time, even while the leadership drains.
func (c *Campaign) hold(wake *alarm, r *leadership) {
	if r.cause != nil && wake.now.mono >= r.drainUntil {
		return // the callbacks have had their time: let the view end
	}
	if r.cause != nil && len(r.running) == 0 {
		return // for nobody is the lease kept: the next step ends the leadership
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
	if !c.announces(c.k.base) || !r.measured && c.clock.disputed(wake.now) {
		due = min(due, r.confirmed+announceEvery)
	}
	due = max(due, c.writes.notBefore)
	if wake.now.mono < due {
		wake.at(due)
		c.compareByRead(wake, r)
		return
	}
	if r.cause != nil || c.health.allows(wake) {
		c.write(wake, OpExtend, c.extension(wake.now, r))
	}
}

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
	if c.leadership != nil && (failed || now.mono-a.start.mono >= c.f.timeout/2) {
		c.trouble = now.mono
	}
}

// campaign follows the record, and claims it when that is allowed.
func (c *Campaign) campaign(wake *alarm) {
	if c.k.disputed {
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
		return
	}
	if c.undertakes(wake.now) {
		switch {
		case c.k.unsure || c.k.ofBase.how != wasRead:
			c.f.read(wake, 0)
		case wake.now.mono < c.writes.notBefore:
			wake.at(c.writes.notBefore)
		default:
			c.write(wake, OpRelease, c.legacy(wake.now))
		}
		return
	}
	at := c.acquirableAt()
	// If reads take longer than PollInterval, another is always due.
	if due, polling := c.f.pollDue(wake, &c.k); polling && !c.contests(at, wake.now) {
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
		wake.until(at...)
		c.standing.prefer(c, wake)
		return
	}
	if !c.fresh(at) {
		// The record must be read again after it has become acquirable. For a write that must
		// wait, a read is too soon: a clock that is ahead would lead to one for each extension.
		due := c.writes.notBefore
		if c.k.unsure {
			due = 0
		}
		c.f.read(wake, due)
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
	if c.health.allows(wake) {
		c.write(wake, OpAcquire, c.acquisition(wake.now))
	}
}

// contests reports whether only its health can keep this candidate from acquiring the record now.
// At is when the record became acquirable.
func (c *Campaign) contests(at deadlines, now instant) bool {
	return c.k.base != nil && at.reached(now) && c.fresh(at) && c.wants(now) && c.leadership == nil && !c.lags() && now.mono >= c.writes.notBefore
}

// fresh reports whether the record was learned after at, when it became acquirable. For a held
// record only a read counts. A vacancy may have been pushed.
func (c *Campaign) fresh(at deadlines) bool {
	k := &c.k
	return !k.unsure && at.reached(k.ofBase.at) &&
		(k.base.Vacant() || at.reached(k.readAt) && (k.ofBase.how == wasRead || !c.proofs.died(k.base)))
}

// acquirableAt returns from when the record may be acquired: when all of its claims are over.
func (c *Campaign) acquirableAt() (at deadlines) {
	for _, e := range c.k.claims() {
		at = append(at, c.claimableAt(e))
	}
	return at
}

func (c *Campaign) claimableAt(e *RaceEntry) deadline {
	switch {
	case e.Emptied:
		return c.k.emptiedUntil(e)
	case e.Vacant() && e.Hold > 0:
	case e.Vacant() && (e.Successor == "" || e.Successor == AnySuccessor || e.Successor == c.cfg.LeaderID):
		return deadline{}
	case e.Vacant():
		return c.k.reservedUntil(e) // for another
	case c.attempts.wrote(e):
		return deadline{}
	case c.proofs.died(e) && e.Hold == 0:
		return c.sparedUntil(e)
	}
	return c.survivedUntil(e)
}

// survivedUntil returns when the record e may be acquired if nothing is known of its holder.
func (c *Campaign) survivedUntil(e *RaceEntry) deadline {
	at := c.clock.late(c.k.heldUntil(e))
	if !e.Vacant() && !c.clock.marks {
		at.sooner = 0 // what is acquired from a disproved term would have to be marked
	}
	return at
}

// marks reports whether an acquisition that begins now must be marked Unsynchronized. It must if the
// store's clock contradicts this one, or if the term that it takes is over, or was when it was read,
// only because its TermExpiry is disproved.
func (c *Campaign) marks(now instant) bool {
	early := func(e *RaceEntry) bool {
		at := c.k.over(e)
		at.sooner = 0
		return c.k.disproved(e) && !(at.reached(now) && at.reached(c.k.ofBase.at))
	}
	return c.cfg.unsynchronized() || c.clock.disputed(now) || c.clock.marks && slices.ContainsFunc(c.k.claims(), early)
}

// holds reports whether the record is this campaign's own and its term has not run out, so that it
// can be released. The newest record known counts as well as the last one read, which may be stale.
func (c *Campaign) holds(now instant) bool {
	return c.holdsBy(now, c.k.base) || c.holdsBy(now, c.k.latest)
}

// holdsBy is holds for one state of the record. A wrong clock cannot tell whether the term is over.
func (c *Campaign) holdsBy(now instant, e *RaceEntry) bool {
	return e != nil && c.attempts.wrote(e) && (!c.k.ends(e).reached(now) || c.clock.fault(now) != nil)
}

// release writes the vacancy, when no callback of the leadership is running. It writes only over a
// record of its own. If an older record was read, the read is stale, or the store was set back: by
// now the record may be another's.
func (c *Campaign) release(wake *alarm) {
	wake.until(c.k.ends(c.k.latest))
	switch b := c.k.base; {
	case c.k.unsure:
		c.f.read(wake, 0)
	case !c.attempts.wrote(b):
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
	case wake.now.mono < c.writes.notBefore:
		wake.at(c.writes.notBefore)
	default:
		c.write(wake, OpRelease, c.departure(wake.now))
	}
}

// lags reports whether the base may come from a lagging replica: a write over it was refused, and
// the read before the last returned something else. The next read tells more. Otherwise, if
// replicas take turns, a write might always be due just after the lagging one was read.
func (c *Campaign) lags() bool {
	return c.refused.void != nil && !c.k.again && same(c.k.base, c.refused.void)
}

// write makes a write of the given kind, and remembers it.
func (c *Campaign) write(wake *alarm, kind OpKind, e *RaceEntry) {
	c.health.spend()
	if kind == OpAcquire {
		c.single.claims()
		c.cooldown = 0 // over, or ended by an operator; a Resign from now on sets it again
	}
	if kind == OpAcquire || kind == OpExtend {
		c.proofs.live(e.Incarnation)
		a := attempt{kind: kind, incarnation: e.Incarnation, id: e.WriteID, measured: e.Unsynchronized, number: e.ElectionNumber, ext: e.Extension, expiry: e.TermExpiry, begun: wake.now}
		a.end = endAfter(wake.now, c.cfg.TermLength-c.cfg.MaxClockSkew, e.TermExpiry.Add(-c.cfg.MaxClockSkew))
		if a.measured {
			// Its own clocks alone, as they are now.
			span := c.cfg.TermLength - c.cfg.MaxClockSkew
			a.end = endAfter(wake.now, span, wake.now.wall.Add(span))
			a.end.apart = drift(c.cfg.TermLength, c.cfg.MaxClockSkew)
		}
		if r := c.leadership; r != nil {
			// If the clock was set back and the term has not grown, the view's end stays too.
			if e.TermExpiry.Equal(r.expiry) {
				a.end = r.end
			}
			r.expiry, r.end, r.measured = a.expiry, a.end, a.measured
		}
		if kind == OpAcquire {
			a.taken = c.takes(wake.now)
		}
		c.attempts.open = append(c.attempts.open, a)
	}
	c.f.begin(wake.now, kind, e, c.k.base)
	wake.at(c.f.call.deadline)
}

// acquisition returns the record that begins a leadership of this campaign. Its Incarnation is made up
// now: two processes may have been restored from one snapshot of a machine, so what was made up
// before need not be this process's alone. A record of this campaign's own keeps its Incarnation,
// which shows everybody why nobody waited for its term.
func (c *Campaign) acquisition(now instant) *RaceEntry {
	e := c.lease(now)
	e.ElectionNumber, e.Incarnation, e.Unsynchronized = c.nextNumber(now), newIncarnation(), c.marks(now)
	if b := c.k.base; c.attempts.wrote(b) {
		e.Incarnation = b.Incarnation
	}
	e.Hold = beyond(c.heldFor, c.cfg.TermLength)
	return e
}

// lease returns what an acquisition and an extension have in common.
func (c *Campaign) lease(now instant) *RaceEntry {
	return &RaceEntry{
		LeaderID:         c.cfg.LeaderID,
		HostPort:         c.cfg.HostPort,
		ConnectionParams: c.cfg.ConnectionParams,
		TermExpiry:       now.wall.Add(c.cfg.TermLength).UTC(),
		TermLength:       c.cfg.TermLength,
		WriteID:          rand.Text()[:13], // 65 bits
		Priority:         c.cfg.Priority,
		Extra:            c.k.base.Extra,
		Token:            c.k.base.Token,
	}
}

// holdLeft returns what is left of r's hold, or zero if it has none. The others wait for MaxClockSkew
// after a hold, so until then a nanosecond of it is left.
func (c *Campaign) holdLeft(r *leadership, now instant) time.Duration {
	if r.held == 0 || now.mono >= r.held+c.cfg.MaxClockSkew {
		return 0
	}
	return max(r.held-now.mono, 1)
}

// beyond returns the Hold of a record: what is left of the hold after the term, if left is what is
// left of it now. It is not zero before the hold is over. So a candidate that proves the leader
// dead sees a hold even if it is shorter than the term.
func beyond(left, term time.Duration) time.Duration {
	if left <= 0 {
		return 0
	}
	return max(left-term, 1)
}

// lastBorn is the greatest number that a clock may give to a record. It is a second of the year
// 2262, the last in which a view can be.
const lastBorn = math.MaxInt64 / int64(time.Second)

// nextNumber returns the ElectionNumber of a leadership that begins now: one more than the greatest
// ever seen. If there is no record, or an empty one, it is at least the seconds since 1970.
// So a record that was deleted, emptied or created again does not repeat a number that a fence has
// seen, if it has had no more than one leadership a second.
func (c *Campaign) nextNumber(now instant) ElectionNumber {
	next := c.maxSeen + 1
	if b := c.k.base; b.ElectionNumber == NoElections {
		at := now.wall
		if stamp := commitTS(b.Token); !stamp.IsZero() {
			at = stamp.Add(now.mono - c.k.firstSeen(b)) // by the store's clock
		}
		next = max(next, ElectionNumber(min(max(at.Unix(), 0), lastBorn)))
	}
	return next
}

// extension returns the record that extends the leadership r.
func (c *Campaign) extension(now instant, r *leadership) *RaceEntry {
	e := c.lease(now)
	e.ElectionNumber, e.Incarnation, e.Unsynchronized = r.number, r.incarnation, r.measured || c.clock.disputed(now)
	e.Extension = c.nextExtension(r.number)
	e.Hold = beyond(c.holdLeft(r, now), c.cfg.TermLength)
	if e.TermExpiry.Before(r.expiry) {
		e.TermExpiry = r.expiry
	}
	if e.Unsynchronized && e.TermExpiry.Equal(r.expiry) {
		e.TermExpiry = r.expiry.Add(1) // it says which write this is, not more
	}
	if s := c.k.base.Successor; s != c.cfg.LeaderID && c.own(c.k.base) {
		e.Successor = s // a request stays on record until it is granted
	}
	return e
}

// vacancy returns the record that releases the base.
func (c *Campaign) vacancy(now instant) *RaceEntry {
	b := c.k.base
	return &RaceEntry{
		TermExpiry:     now.wall.UTC(),
		TermLength:     b.TermLength,
		ElectionNumber: b.ElectionNumber,
		Extension:      c.nextExtension(b.ElectionNumber),
		Incarnation:    b.Incarnation,
		Unsynchronized: b.Unsynchronized || c.cfg.unsynchronized(), // its TermExpiry is of this clock
		Extra:          b.Extra,
		Token:          b.Token,
	}
}

// departure returns the vacancy that releases this campaign's own record.
func (c *Campaign) departure(now instant) *RaceEntry {
	b, e := c.k.base, c.vacancy(now)
	if r := c.last; r != nil { // of a record that began none, too
		e.Hold = c.holdLeft(r, now)
	}
	if s := b.Successor; e.Hold == 0 && s != "" && s != AnySuccessor && s != c.cfg.LeaderID {
		e.Successor = s
		e.TermExpiry = e.TermExpiry.Add(c.cfg.TermLength)
	}
	return e
}

// nextExtension returns a number greater than every Extension that is known of a leadership or was
// written for it, so that no two records are alike.
func (c *Campaign) nextExtension(number ElectionNumber) uint64 {
	var top uint64
	for _, e := range []*RaceEntry{c.k.latest, c.k.base} {
		if e != nil && e.ElectionNumber == number {
			top = max(top, e.Extension)
		}
	}
	return max(top, c.attempts.greatest(number)) + 1
}

// own reports whether e belongs to the current leadership.
func (c *Campaign) own(e *RaceEntry) bool {
	r := c.leadership
	return r != nil && e.ElectionNumber == r.number && c.attempts.wrote(e)
}

// extendable reports whether an extension may overwrite the record that a read returned. It may if
// the record is this campaign's own. It also may if the store was set back and nobody leads by any of
// the claims: each is this campaign's own, or a vacancy, even a reserved one, since this leadership is
// newer, or acquirable.
func (c *Campaign) extendable(now instant) bool {
	alive := func(e *RaceEntry) bool { return !e.Vacant() && !c.claimableAt(e).reached(now) }
	return c.attempts.wrote(c.k.base) || !slices.ContainsFunc(c.k.claims(), alive)
}

// standing says since when this candidate, preferred to the leader, has stood by with nothing
// wrong. It belongs to the loop.
type standing struct {
	since  time.Duration
	stands bool
	under  *RaceEntry // a record of the leadership
	from   uint64     // its Extension at since
	pace   uint64     // by how much the Extension has grown in a term since then; 0: not known yet
}

// settled is for about how many terms a leader leads before a preferred candidate may ask it to
// hand over. The terms are counted by the record's Extension: by what it grew while the candidate
// stood by for a term, and by at least two a term. So a candidate that crashes whenever it leads,
// and is started again, does not ask more often.
const settled = 4

// prefer asks a less preferred leader to hand over to this candidate, which must have stood by for
// a term with nothing wrong. The request names it as the Successor, so nobody asks that leader
// again. If the newest term known is over, and the record is still not acquirable, the store was
// set back: then no leader is known who could be asked.
func (s *standing) prefer(c *Campaign, wake *alarm) {
	if !c.outranks(wake.now, c.k.latest) || c.k.over(c.k.latest).reached(wake.now) {
		s.stands = false
		return
	}
	if e := c.k.latest; !s.stands || s.under.ElectionNumber != e.ElectionNumber || s.under.Incarnation != e.Incarnation {
		*s = standing{stands: true, since: wake.now.mono, under: e, from: e.Extension}
	}
	if !c.health.allows(wake) {
		return
	}
	if c.cfg.Healthy != nil {
		wake.at(c.health.freshTil)
	}
	switch due := s.since + c.cfg.TermLength; {
	case wake.now.mono < due:
		wake.at(due)
	case c.k.unsure || c.k.readAt.mono < due || !same(c.k.base, c.k.latest):
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
	case !s.has(c.k.latest.Extension, wake.now.mono-s.since, c.cfg.TermLength): // the next extension is news
	case wake.now.mono < c.writes.notBefore:
		wake.at(c.writes.notBefore)
	default:
		request := c.k.base.Clone()
		request.Extension++
		request.Successor = c.cfg.LeaderID
		c.f.log(slog.LevelInfo, "asking a less preferred leader to hand over", "id", c.cfg.LeaderID, "leader", request.LeaderID,
			"token", uint64(request.ElectionNumber), "priority", c.cfg.Priority, "leader_priority", request.Priority)
		c.write(wake, OpRequest, request)
	}
}

// has reports whether a leadership with this Extension is settled. The first call, after standing
// by for at least a term, learns the pace.
func (s *standing) has(extension uint64, stood, term time.Duration) bool {
	if s.pace == 0 {
		s.pace = max(uint64(float64(extension-s.from)*float64(term)/float64(stood)), 2)
	}
	return extension >= settled*s.pace
}

// outranks reports whether this candidate is ready to lead and preferred to the leader of e, and
// nobody has asked that leader yet. A leadership with a Hold is not asked.
func (c *Campaign) outranks(now instant, e *RaceEntry) bool {
	return c.leadership == nil && c.wants(now) && !e.Vacant() && e.LeaderID != c.cfg.LeaderID && // a request to itself changes nothing
		e.Priority < c.cfg.Priority && e.Successor == "" && e.Hold == 0
}

// announceEvery is how soon after the last extension another may follow for an announcement. Some
// stores take one write a second for each object.
const announceEvery = time.Second

// maxAnnouncement is how many bytes of a record HostPort and ConnectionParams may take, in the
// worst case. Stores keep a quarter of a MiB.
const maxAnnouncement = 192 << 10

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
	c.f.post(announced{slices.Clone(hostPort), slices.Clone(params)})
	return nil
}

// announces reports whether the record e has this candidate's HostPort and ConnectionParams.
func (c *Campaign) announces(e *RaceEntry) bool {
	return slices.Equal(e.HostPort, c.cfg.HostPort) && bytes.Equal(e.ConnectionParams, c.cfg.ConnectionParams)
}

// checkAnnouncement returns why a record cannot keep this HostPort and these ConnectionParams.
func checkAnnouncement(hostPort []string, params []byte) (faults []error) {
	size := base64.StdEncoding.EncodedLen(len(params))
	for i, s := range hostPort {
		if !utf8.ValidString(s) {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not UTF-8 text, which is all that a record can keep", i, s))
		} else if _, _, err := net.SplitHostPort(s); err != nil {
			faults = append(faults, fmt.Errorf("HostPort %d, %q, is not host:port: %w", i, s, err))
		}
		size += 6 * len(s) // if each is a control character
	}
	if size > maxAnnouncement {
		faults = append(faults, fmt.Errorf("HostPort and ConnectionParams may take %d bytes of the record, and %d are allowed: keep them short", size, maxAnnouncement))
	}
	return faults
}
