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
}

// settled is how often a leadership has been extended, in about four terms, when a
// preferred candidate may ask it to hand over. It is the record's count, so that a
// candidate that crashes whenever it leads, and is started again, asks no more often.
const settled = 8

// prefer asks a leader that is less preferred to hand over to this candidate, when that
// has stood by for a term with nothing wrong. A request names it as the Successor: then
// nobody asks that leader again.
func (c *Campaign) prefer(wake *alarm) {
	s := &c.standing
	if !c.outranks(wake.now, c.k.latest) {
		s.stands = false
		return
	}
	if !s.stands {
		s.stands, s.since = true, wake.now.mono
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
	case c.k.latest.Extension < settled: // the next extension is news
	case c.k.unsure || c.k.readAt.mono < due || !same(c.k.base, c.k.latest):
		c.f.read(wake, c.f.lastRead+c.f.reads.base)
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

// outranks reports whether this candidate, which would lead now, is preferred to the one
// that leads by e, and nobody has asked that one already. What is on hold runs to its end.
func (c *Campaign) outranks(now instant, e *RaceEntry) bool {
	return c.leadership == nil && c.wants(now) && !e.Vacant() && e.Incarnation != c.incarnation &&
		e.Priority < c.cfg.Priority && e.Successor == "" && e.Hold == 0
}
