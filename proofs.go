package leaderelection

import (
	"log/slog"
	"slices"
)

// Lifeline reports which leaders' processes are dead, by what the kernel of their machine knows.
// Set Config.Lifeline to the *Lifeline of package [lifeline]. It is an interface so that tests
// can have one without processes. None of its methods may wait for more than the kernel's
// memory.
//
// [lifeline]: https://pkg.go.dev/github.com/c8e606e4/leaderelection/lifeline
type Lifeline interface {
	// Live makes sure that the death of this process will prove the incarnation dead. The
	// campaign calls it before each write of the lease. It does its work once. An error
	// means that this process's death can no longer be proved.
	Live(incarnation string) error
	// End undoes Live, when the campaign has ended in order.
	End(incarnation string) error
	// Dead reports whether the death of the incarnation's process is proved. A proof is for
	// ever. Without a proof it returns false.
	Dead(incarnation string) bool
	// OnDeath calls tell, in its own goroutine, when Dead becomes true, if the kernel reports
	// that.
	OnDeath(incarnation string, tell func()) (stop func())
	// Bury forgets an incarnation that is proved dead. Its record is another's by then, or
	// vacant.
	Bury(incarnation string) error
}

// proofs are what a campaign knows of the deaths of others. They belong to its loop.
type proofs struct {
	f           *follower
	line        Lifeline // nil: none
	id          string   // the campaign's own LeaderID
	incarnation string   // the newest one whose death is made provable

	watched string // the incarnation whose death is awaited
	unwatch func()
	dead    []string // proved; the last few
	lost    bool     // it was logged that this process's death cannot be proved
}

// maxDead is how many of the dead are remembered. If one is forgotten before it is buried, the
// kernel can be asked again.
const maxDead = 8

// died reports whether the holder of the record e is proved dead.
func (p *proofs) died(e *RaceEntry) bool {
	return e != nil && !e.Vacant() && slices.Contains(p.dead, e.Incarnation)
}

// watch asks whether the holder of the record e is dead, and for a report when it dies.
func (p *proofs) watch(e *RaceEntry) {
	if p.line == nil || e.Incarnation == p.watched {
		return
	}
	p.stop()
	if e.Vacant() || e.Incarnation == p.incarnation || p.died(e) {
		return
	}
	if p.line.Dead(e.Incarnation) {
		p.proved(e.Incarnation)
		return
	}
	of := e.Incarnation
	p.watched, p.unwatch = of, p.line.OnDeath(of, func() { p.f.post(deathProved{of}) })
}

// stop ends the watch.
func (p *proofs) stop() {
	if p.unwatch != nil {
		p.unwatch()
	}
	p.watched, p.unwatch = "", nil
}

// end forgets this campaign's incarnation, when the campaign has ended in order.
func (p *proofs) end() {
	if p.line != nil {
		p.stop()
		_ = p.line.End(p.incarnation) // or the name stays until this process ends
	}
}

// proved takes in that the process of an incarnation is proved dead.
func (p *proofs) proved(incarnation string) {
	if incarnation == p.incarnation {
		return // this process lives
	}
	if p.dead = append(p.dead, incarnation); len(p.dead) > maxDead {
		p.dead = p.dead[1:]
	}
	p.f.log(slog.LevelInfo, "a process of this machine that held the record is dead", "id", p.id, "incarnation", incarnation)
}

// bury forgets the dead that hold nothing any more, by the records of k. It is called when this
// campaign has acquired or released the record.
func (p *proofs) bury(k *knowledge) {
	for _, d := range p.dead {
		if holds := func(e *RaceEntry) bool { return !e.Vacant() && e.Incarnation == d }; !holds(k.latest) && !holds(k.base) {
			_ = p.line.Bury(d) // it may be buried already
		}
	}
}

// live makes this process's death provable, before a write of the lease with this incarnation.
func (p *proofs) live(incarnation string) {
	if p.line == nil {
		return
	}
	if p.incarnation != incarnation {
		_ = p.line.End(p.incarnation) // or the name stays until this process ends
		p.incarnation = incarnation
	}
	err := p.line.Live(p.incarnation)
	if err != nil && !p.lost {
		_ = p.line.End(p.incarnation) // a file that is not locked any more would be a false death
		p.f.log(slog.LevelError, "the lifeline is lost: if this process dies, others wait for its term", "id", p.id, "err", err)
	}
	p.lost = err != nil
}

// sparedUntil returns when the record e of a dead holder may be taken, or released for it: at once,
// if its holder did not take it too early. If the stamp shows that it did, or may have, the leader
// that it was taken from may be alive, and nobody keeps the record any more (see keepIfEarly). Its
// term is over when the store's clock or, without a stamp, this one shows the time at which, by its
// own clock, the dead holder began to acquire the record.
func (c *Campaign) sparedUntil(e *RaceEntry) deadline {
	stamp, begun := commitTS(e.Token), e.TermExpiry.Add(-c.k.termOf(e))
	early, known := c.clock.check.Early(stamp, begun, begun)
	switch {
	case !c.clock.decides() || c.k.unsynchronized || known && !early || !known && e.Unsynchronized:
		return deadline{}
	case known:
		return deadline{mono: c.k.versionSeen(e) + min(begun.Sub(stamp), c.k.termOf(e)+c.k.drift(e))}
	}
	at := c.survivedUntil(e)
	at.wall = begun
	return at
}

// undertakes reports whether this campaign should release the record for its dead holder, since
// it does not acquire the record itself now.
func (c *Campaign) undertakes(now instant) bool {
	b := c.k.base
	if !c.proofs.died(b) || !c.proofs.died(c.k.latest) || b.Compare(c.k.latest) != 0 || c.leadership != nil || c.stopping {
		return false
	}
	acquires := c.wants(now) && c.acquirableAt().reached(now)
	return !acquires && c.mayRelease(b, now)
}

// mayRelease reports whether the clocks allow that the record e is released for its dead holder. The
// vacancy keeps the rest of a Hold, which lasts longer than the term of any leader before.
func (c *Campaign) mayRelease(e *RaceEntry, now instant) bool {
	trusted := !c.clock.wrong(now) && !c.clock.check.Doubted(now.reading())
	return trusted && (e.Hold > 0 || c.sparedUntil(e).reached(now))
}

// legacy returns the vacancy that the dead holder would have left. It names no Successor: a
// request to hand over ended with the holder.
func (c *Campaign) legacy(now instant) *RaceEntry {
	b, e := c.k.base, c.vacancy(now)
	if b.Hold > 0 {
		left := min(b.TermExpiry.Sub(e.TermExpiry), MaxTermLength) + min(b.Hold, MaxTermLength)
		if c.k.measures(b) {
			left = c.k.heldUntil(b).mono - now.mono
		}
		e.Hold = max(left, 1)
	}
	return e
}
