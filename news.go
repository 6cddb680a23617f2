package leaderelection

import "log/slog"

// tellChange hands new leaderships and vacancies to LeaderChanged.
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
		args := []any{"id", c.cfg.LeaderID, "election", uint64(e.ElectionNumber), "successor", e.Successor}
		if e.Hold > 0 {
			args = append(args, "hold_until", e.TermExpiry.Add(min(e.Hold, MaxTermLength)))
		}
		c.f.log(slog.LevelInfo, "vacant", args...)
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
