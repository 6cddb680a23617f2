package leaderelection

import (
	"log/slog"
	"time"
)

// standing is since when a candidate stands by that is preferred to the leader, and well.
// It belongs to the loop.
type standing struct {
	since  time.Duration
	stands bool
	under  ElectionNumber // the leadership
	from   uint64         // its Extension then
	pace   uint64         // by how much that grew in a term since; 0: not known yet
}

// settled is for how many terms about a leader leads before a preferred candidate may ask it to
// hand over: so many times the Extension has grown by what it grew by while that candidate
// stood by for a term, and by two at least in each. It is the record's count, so that a candidate
// that crashes whenever it leads, and is started again, asks no more often.
const settled = 4

// prefer asks a leader that is less preferred to hand over to this candidate, when that
// has stood by for a term with nothing wrong. A request names it as the Successor: then
// nobody asks that leader again. If the newest term known is over, and the record is not to be
// acquired, the store was set back: by what is known nobody leads who could be asked.
func (c *Campaign) prefer(wake *alarm) {
	s := &c.standing
	if !c.outranks(wake.now, c.k.latest) || c.k.over(c.k.latest).reached(wake.now) {
		s.stands = false
		return
	}
	if e := c.k.latest; !s.stands || s.under != e.ElectionNumber {
		*s = standing{stands: true, since: wake.now.mono, under: e.ElectionNumber, from: e.Extension}
	}
	if !c.healthy(wake) {
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
			"election", uint64(request.ElectionNumber), "priority", c.cfg.Priority, "leader_priority", request.Priority)
		c.write(wake, OpRequest, request)
	}
}

// has reports whether a leadership that has been extended so often is settled. Asked first, after
// standing by for a term at least, it learns the pace.
func (s *standing) has(extension uint64, stood, term time.Duration) bool {
	if s.pace == 0 {
		s.pace = max(uint64(float64(extension-s.from)*float64(term)/float64(stood)), 2)
	}
	return extension >= settled*s.pace
}

// outranks reports whether this candidate, which would lead now, is preferred to the one
// that leads by e, and nobody has asked that one already. What is on hold runs to its end.
func (c *Campaign) outranks(now instant, e *RaceEntry) bool {
	return c.leadership == nil && c.wants(now) && !e.Vacant() &&
		e.Priority < c.cfg.Priority && e.Successor == "" && e.Hold == 0
}
