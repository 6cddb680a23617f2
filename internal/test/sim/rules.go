package sim

import (
	"time"

	le "github.com/c8e606e4/leaderelection"
)

// writing holds a candidate's write to the rules, before it is made.
func (r *recorder) writing(p *process, o *op) {
	e := o.write
	if _, used := r.wroteUnsynchronized[e.Incarnation]; !used && !e.Vacant() && e.Extension == 0 && e.Incarnation != "" {
		p.incarnations[e.Incarnation] = true
		r.wroteUnsynchronized[e.Incarnation] = p.unsynchronized
	}
	if !p.incarnations[e.Incarnation] {
		r.failf(p.name, "writes %v with incarnation %q, which it has not made up for an acquisition", r.short(e), e.Incarnation)
	}
	r.holding(p, o)
	if e.Vacant() {
		r.releasing(p, e)
		return
	}
	if e.LeaderID != p.host.id || e.TermLength != p.term || e.Priority != p.priority {
		r.failf(p.name, "writes another's record: %v, term %v", r.short(e), e.TermLength)
	}
	last := p.asked[e.ElectionNumber]
	if e.Extension > 0 && e.TermExpiry.Before(last) {
		r.failf(p.name, "asks for a term that ends %v earlier than it asked for before: %v", last.Sub(e.TermExpiry), r.short(e))
	}
	p.marked[e.ElectionNumber] = e.Unsynchronized
	if e.Extension == 0 { // an extension has that of its acquisition: the specification holds it to that
		r.marking(p, o)
	}
	if p.measures(e.ElectionNumber) {
		last = last.Add(1) // it only names the write
		for _, shown := range p.actor.clock.Shown() {
			end := attempt{e.ElectionNumber, shown.wall.Add(p.span()).UnixNano()}
			if _, taken := p.ends[end]; !taken { // by an earlier attempt, which that reading was for
				p.ends[end] = attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}
			}
		}
	}
	limit := o.wall.Add(p.term)
	for _, shown := range p.actor.clock.Shown() { // it may have been set back, and the caller frozen, before the call
		if t := shown.wall.Add(p.term); t.After(limit) {
			limit = t
		}
	}
	if e.TermExpiry.After(limit) && !e.TermExpiry.Equal(last) {
		r.failf(p.name, "asks for a term that ends %v too late: %v", e.TermExpiry.Sub(limit), r.short(e))
	}
	if e.Extension > 0 { // of acquisitions that of the one that has happened counts
		p.asked[e.ElectionNumber] = e.TermExpiry
	}
	k := attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}
	if _, again := p.began[k]; !again {
		p.began[k] = beginning{o.at, o.mono}
	}
	// An extension in the very moment in which a leadership begins and is given up is
	// seen before its OnElected: that it may be made is not known here.
	if g := p.leaderships[e.ElectionNumber]; !p.well && (e.Extension == 0 || g != nil && g.ctx.Err() == nil) {
		r.failf(p.name, "writes %v without having asked for its health since its last write", r.short(e))
	}
	p.well = false
	if e.Extension > 0 {
		if _, won := p.expiry[e.ElectionNumber]; !won {
			r.failf(p.name, "extends what it has never won: %v", r.short(e))
		}
		return
	}
	if p.leaderships[e.ElectionNumber] != nil {
		r.failf(p.name, "claims %v, by which it has led already", r.short(e))
	}
	if n := p.actor.newest; n != nil && n.Vacant() && n.Successor == p.host.id {
		p.cooldown = 0 // an operator's request ends it, also where another is faster now
	}
	if p.running > 0 {
		r.failf(p.name, "campaigns (%v) while %d callbacks of an earlier leadership are running", r.short(e), p.running)
	}
}

// releasing: nothing of the leadership may be left.
func (r *recorder) releasing(p *process, e *le.RaceEntry) {
	if p.running > 0 {
		r.failf(p.name, "releases (%v) while %d callbacks are running", r.short(e), p.running)
	}
	for _, g := range r.leaderships {
		if g.p == p && g.inFuture() {
			r.failf(p.name, "releases (%v) while the view of leadership %d is alive", r.short(e), g.number)
		}
	}
}

// landed holds a write that happened to what the specification does not know: whose it is, and what that one was told.
// Old is what it replaced.
func (r *recorder) landed(o *op, old, e *le.RaceEntry) {
	who := o.actor.name
	p := o.actor.proc
	switch {
	case p == nil:
		r.counts["requests"]++
	case e.Vacant():
		if old.Vacant() || !p.incarnations[old.Incarnation] || old.ElectionNumber != e.ElectionNumber {
			r.failf(who, "releases what is not its own: %v over %v", r.short(e), r.short(old))
		}
		r.kept(p, old)
		r.counts["releases"]++
	case !old.Vacant() && old.Incarnation == e.Incarnation && old.ElectionNumber == e.ElectionNumber:
		r.counts["extensions"]++
	case e.Extension > 0 && r.lostSince(p, e.ElectionNumber):
		r.counts["fault: a leader extended its leadership over a record that the store was set back to"]++
		if !old.Vacant() && !p.incarnations[old.Incarnation] {
			if early := r.early(o, old, e); early > 0 {
				r.failf(who, "extends its leadership over %v, by which another may lead for %v more", r.short(old), early)
			}
		}
	default:
		r.acquired(o, p, old, e)
	}
	if p != nil && !e.Vacant() {
		p.expiry[e.ElectionNumber] = e.TermExpiry
		if e.Extension == 0 {
			p.asked[e.ElectionNumber] = e.TermExpiry
		}
		k := attempt{e.ElectionNumber, e.TermExpiry.UnixNano()}
		if _, again := p.landed[k]; !again { // a clock that was set back may ask for the same term twice
			p.landed[k], p.index[k], p.stamps[k] = r.now(), len(r.records)-1, stampOf(e)
		}
	}
}

// kept: what p has robbed it does not release while the view of the one who led is
// alive, by more than its stamp leaves open.
func (r *recorder) kept(p *process, old *le.RaceEntry) {
	for _, w := range p.won {
		g := w.robbed
		if w.number != old.ElectionNumber || g == nil {
			continue
		}
		r.counts["leases taken too early, and released"]++
		if g.acts() && g.inFuture() && r.blind(g) == 0 && r.now()-w.at > r.uncertainty(g, w) {
			r.failf(p.name, "releases %v, which it had taken too early, while the view of leadership %d (%s) is alive", r.short(old), g.number, g.p.name)
		}
	}
}

// acquired: was the record to be had, and did the challenger know?
func (r *recorder) acquired(o *op, p *process, old, e *le.RaceEntry) {
	r.counts["acquisitions"]++
	who := o.actor.name
	if e.Extension > 0 {
		r.failf(who, "extends a leadership over another's record: %v over %v", r.short(e), r.short(old))
	}
	for i := range r.records[:len(r.records)-1] {
		if n := r.records[i].ElectionNumber; n >= e.ElectionNumber && (!r.erased(i, len(r.records)-1) || o.greatest >= e.ElectionNumber || r.repeats(o, old, i)) {
			r.failf(who, "takes number %d though %d was given already", e.ElectionNumber, n)
			break
		}
	}
	if old.Vacant() || old.Incarnation != e.Incarnation {
		for i := range r.records[:len(r.records)-1] {
			if r.records[i].Incarnation == e.Incarnation {
				r.failf(who, "takes another's record with an incarnation that it has used before: %v", r.short(e))
				break
			}
		}
	}
	if o.mono < p.cooldown && !(old.Vacant() && old.Successor == e.LeaderID) {
		r.failf(who, "claims %v, though it is to cool down for %v more", r.short(e), p.cooldown-o.mono)
	}
	p.cooldown = 0
	if off := o.wall.Sub(r.epoch.Round(0)) - o.at; off > p.skew && !old.Vacant() && r.lies {
		r.hush(o.actor, wasPushed) // it knows when it is told
	}
	if n := o.newest; n != nil && old.Compare(n) < 0 && !old.Emptied {
		p.overOld[e.ElectionNumber] = o.sure
	}
	w := won{number: e.ElectionNumber, at: r.now(), op: o, stamp: stampOf(e)}
	if g := r.robbed(old); g != nil && g.p != p && !r.lost(g, o.actor, o.at, len(r.records)-1) {
		r.robs(o, p, g)
		if r.lies && !r.believed {
			w.robbed = g
		}
	}
	for _, g := range r.leaderships {
		if g.p != p && r.lost(g, o.actor, o.at, len(r.records)-1) {
			g.passed = append(g.passed, len(r.records)-1)
		}
	}
	p.won = append(p.won, w)
	if r.proved(p, old) {
		r.counts["acquisitions from the dead"]++
	}
	if old.Emptied {
		r.counts["acquisitions over an emptied record"]++
	}
	if old.Hold > 0 && !old.Vacant() {
		r.counts["acquisitions after another's hold"]++
	}
	r.holds = append(r.holds, hold{p, e.ElectionNumber, len(r.records) - 1})
	r.acquirable(o, old, e)
}

// acquirable: may this record be taken now, and does who takes it know?
func (r *recorder) acquirable(o *op, old, e *le.RaceEntry) {
	who := o.actor.name
	if early := r.early(o, old, e); early > 0 {
		r.failf(who, "campaigns %v too early, by %v%s", r.short(old), early, map[bool]string{true: " of its monotonic clock"}[r.noCommonClock(o.actor, old)])
	}
	if old.Vacant() || old.Incarnation == e.Incarnation {
		return
	}
	read := *o
	read.wall, read.mono = o.readAt.wall, o.readAt.mono
	then := *e
	then.Unsynchronized = e.Unsynchronized || r.wild || r.lies // its wall clock may have shown it since
	if r.early(&read, old, &then) > 0 {
		r.failf(who, "campaigns %v without having read it since it was acquirable", r.short(old))
	}
}

// early is how long it is from o until old may be taken by e.
func (r *recorder) early(o *op, old, e *le.RaceEntry) time.Duration {
	switch {
	case old.Emptied:
		return r.overEmptied(o)
	case old.Incarnation == e.Incarnation && !old.Vacant():
		return 0
	case old.Hold == 0 && r.proved(o.actor.proc, old):
		return 0
	case old.Hold > 0:
		return r.heldFor(o, old, e)
	case old.Vacant() && (old.Successor == "" || old.Successor == le.AnySuccessor || old.Successor == e.LeaderID):
		return 0
	case r.noCommonClock(o.actor, old):
		return r.wait(o, old)
	case old.Vacant():
		return min(old.TermExpiry.Sub(o.wall), r.reserved(o, old))
	}
	wait := old.TermExpiry.Add(o.actor.proc.skew).Sub(o.wall)
	if e.Unsynchronized { // two clocks contradict each other
		wait = min(wait, r.wait(o, old))
	}
	return wait
}

// marking: who says that clocks may not be compared has a reason. Either its own is wrong, or says that it may be; or
// another's was, which is shown by a term that has not changed for longer than right clocks let one last. That a
// mark is missing shows by what comes of it.
func (r *recorder) marking(p *process, o *op) {
	e, h := o.write, p.host
	switch {
	case !e.Unsynchronized || p.unsynchronized || r.wild || h.skewed:
		return
	case h.badSince != 0 || h.wasBad && r.now()-max(h.badUntil, h.clock.Disturbed()) < p.term/4+time.Second: // it is asked that often
		r.counts["leaderships marked by a clock that says that it is off"]++
		return
	}
	if n := p.actor.newest; r.lies && p.hold == 0 {
		for _, old := range []*le.RaceEntry{n, &r.records[len(r.records)-1]} {
			patience := r.since(o, old) + max(2*old.TermLength, old.TermLength+3*p.skew)
			if !old.Vacant() && old.Hold == 0 && patience <= 0 && o.wall.Before(old.TermExpiry.Add(p.skew)) {
				r.counts["leaderships marked by patience"]++
				return
			}
		}
	}
	r.failf(p.name, "says in %v that its clock may not be compared, though that is right, and no term has outlasted right clocks", r.short(e))
}

// lostSince reports whether the store was set back after p's last write of a leadership,
// which is lost by that.
func (r *recorder) lostSince(p *process, number le.ElectionNumber) bool {
	k := attempt{number, p.expiry[number].UnixNano()}
	i, ok := p.index[k]
	return ok && r.erased(i, len(r.records)-1)
}

// check asks every view that may be alive, as its holder would, and compares the
// answer with what the rules allow. It is called whenever a view may have become
// alive, and at random.
func (r *recorder) check() {
	now := r.now()
	var alive *leadership
	kept := r.leaderships[:0]
	for _, g := range r.leaderships {
		if g.p.actor.dead.Load() {
			continue
		}
		switch {
		case !g.acts(): // it cannot ask
		case g.inFuture():
			r.alive(g)
			if alive != nil && (!r.wild || r.believed) {
				r.overlap(alive, g)
			}
			alive = g
		case !g.over:
			g.over, g.overSeen = true, now
			r.logf(g.p.name, "view of leadership %d is over", g.number)
		}
		if !g.over || g.running > 0 || !g.done || now-g.overSeen < 2*r.term {
			kept = append(kept, g)
		}
	}
	r.leaderships = kept
	if alive != nil {
		r.leader, r.leaderAt = alive, now
		if r.leaderAgain == 0 {
			r.leaderAgain = now
		}
	}
}

// alive: may this view be in the future?
func (r *recorder) alive(g *leadership) {
	p := g.p
	wall, mono := p.actor.clock.Both()
	if g.over {
		r.failf(p.name, "the view of leadership %d has come back to life, %v after it was over", g.number, r.now()-g.overSeen)
	}
	landed, ok := p.expiry[g.number]
	if !ok {
		r.failf(p.name, "the view of leadership %d is in the future, but nothing of that leadership was ever written", g.number)
		return
	}
	end := landed.Add(-p.skew)
	if p.measures(g.number) {
		end = g.view.Get()
		left := p.began[g.attempt()].mono + p.span() - mono
		// A set-back that was let pass at an earlier look does not count: see tighten.
		more := end.Sub(wall) - left
		if n := len(g.moves); n == 0 || !g.moves[n-1].wall.Equal(end) {
			g.setBack = 0
		}
		if more-max(g.setBack, 0) > p.allowance(p.term) {
			r.failf(p.name, "the view of leadership %d is in the future by a clock that was set back: by the wall clock %v more are left than by the monotonic one", g.number, more)
		}
		g.setBack = more
	}
	if !wall.Before(end) {
		r.failf(p.name, "the view of leadership %d is in the future %v after its end by the wall clock", g.number, wall.Sub(end))
	}
	if end := p.began[attempt{g.number, landed.UnixNano()}].mono + p.span(); mono >= end {
		r.failf(p.name, "the view of leadership %d is in the future %v after its end by the monotonic clock", g.number, mono-end)
	}
	r.moved(g)
	r.honest(g)
	r.owns(g)
}

// inFuture asks the view.
func (g *leadership) inFuture() (alive bool) {
	g.p.actor.clock.Outside(func() { alive = g.view.ValueInFuture() })
	return alive
}

// moved remembers where the view ends, and since when: it moved when, or after,
// its leader knew that the term it goes with was written.
func (r *recorder) moved(g *leadership) {
	end := g.view.Get()
	if n := len(g.moves); n > 0 && g.moves[n-1].wall.Equal(end) {
		return
	}
	k := g.attempt()
	began, ok := g.p.began[k]
	if !ok {
		r.failf(g.p.name, "the view of leadership %d ends at %v, which is MaxClockSkew before no term that was asked for", g.number, end.Sub(r.epoch.Round(0)))
	}
	if n := len(g.moves); n > 0 && (end.Before(g.moves[n-1].wall) && !g.p.measures(g.number) || began.mono+g.p.span() < g.moves[n-1].mono) {
		r.failf(g.p.name, "the view of leadership %d moves back", g.number)
	}
	if _, known := g.p.confirmed[k]; !known {
		r.failf(g.p.name, "the view of leadership %d rests on a term that no answer to a write, and no read, has confirmed", g.number)
	}
	m := r.measured(g, k)
	at := max(m.happened, m.known)
	g.moves = append(g.moves, move{at: at, wall: end, mono: began.mono + g.p.span()})
}

// overAt is the true time at which the view ended by its clocks, not looking at
// what ended it before.
func (g *leadership) overAt(now time.Duration) time.Duration {
	clock := g.p.actor.clock
	for i, m := range g.moves {
		until := now + 1
		if i+1 < len(g.moves) {
			until = g.moves[i+1].at
		}
		if at := clock.Reached(m.at, until, m.wall, m.mono); at < until {
			return at
		}
	}
	return now
}
