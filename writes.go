package leaderelection

// write makes a write of the given kind, and remembers it.
func (c *Campaign) write(wake *alarm, kind OpKind, e *RaceEntry) {
	c.health.fresh = false
	if k := c.health.check; k != nil {
		k.stale = true
	}
	if kind == OpAcquire {
		c.single.claims()
		c.cooldown = 0 // over, or ended by an operator; a Resign from now on sets it anew
	}
	if kind == OpAcquire || kind == OpExtend {
		a := attempt{kind: kind, number: e.ElectionNumber, ext: e.Extension, expiry: e.TermExpiry, begun: wake.now, start: wake.now.mono}
		a.end = endAfter(wake.now, c.cfg.TermLength-c.cfg.MaxClockSkew, e.TermExpiry.Add(-c.cfg.MaxClockSkew))
		if c.cfg.Unsynchronized {
			// Its own clocks alone, as they are now.
			span := c.cfg.TermLength - c.cfg.MaxClockSkew
			a.end = endAfter(wake.now, span, wake.now.wall.Add(span))
			a.end.apart = max(drift(c.cfg.TermLength, c.cfg.MaxClockSkew), 1)
		}
		if r := c.leadership; r != nil {
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

// acquisition is the record that begins a leadership of one's own.
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
		Hold:             max(c.cfg.Hold-c.cfg.TermLength, 0),
		Priority:         c.cfg.Priority,
		Extra:            c.k.base.Extra,
		Token:            c.k.base.Token,
	}
}

// extension is the record that extends the leadership r.
func (c *Campaign) extension(now instant, r *leadership) *RaceEntry {
	e := c.acquisition(now)
	e.ElectionNumber = r.number
	e.Extension = c.nextExtension(r.number)
	e.Hold = max(r.held-now.mono-c.cfg.TermLength, 0)
	if e.TermExpiry.Before(r.expiry) {
		e.TermExpiry = r.expiry
	}
	if c.cfg.Unsynchronized && e.TermExpiry.Equal(r.expiry) {
		e.TermExpiry = r.expiry.Add(1) // it says which write this is, not more
	}
	if s := c.k.base.Successor; s != c.cfg.LeaderID && c.own(c.k.base) {
		e.Successor = s // a request stays on record until it is granted
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
	if r := c.last; r != nil { // of a record that began none, too
		e.Hold = max(r.held-now.mono, 0)
	}
	if s := b.Successor; e.Hold == 0 && s != "" && s != AnySuccessor && s != c.cfg.LeaderID {
		e.Successor = s
		e.TermExpiry = e.TermExpiry.Add(c.cfg.TermLength)
	}
	return e
}

// nextExtension is greater than every Extension known or asked for in a leadership,
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

// own reports whether e is of the current leadership.
func (c *Campaign) own(e *RaceEntry) bool {
	r := c.leadership
	return r != nil && !e.Vacant() && e.Incarnation == c.incarnation && e.ElectionNumber == r.number
}

// extendable reports whether the record that a read returned may be overwritten by
// an extension. That is so where it is one's own, and where a store that was set
// back holds something by which nobody can lead: a vacancy, for whomever it is reserved,
// since this leadership is newer; or what anybody could claim.
func (c *Campaign) extendable(now instant) bool {
	b := c.k.base
	return b.Vacant() || b.Incarnation == c.incarnation || c.claimableAt(b).reached(now)
}
