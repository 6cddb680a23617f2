package leaderelection

import "log/slog"

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

// proofs tell a lease of the deaths of others, and make this process's death provable. They belong to the
// campaign's loop.
type proofs struct {
	f           *follower
	l           *lease
	line        Lifeline // nil: none
	incarnation string   // the newest one of this campaign's, whose death is made provable

	watched string // the incarnation whose death is awaited
	unwatch func()
	lost    bool // it was logged that this process's death cannot be proved
}

// watch asks whether the holder of the record e is dead, and for a report when it dies.
func (p *proofs) watch(e *RaceEntry) {
	if p.line == nil || e.Incarnation == p.watched {
		return
	}
	p.stop()
	if e.Vacant() || e.Incarnation == p.incarnation || p.l.dead[e.Incarnation] {
		return
	}
	of := e.Incarnation
	if p.line.Dead(of) {
		p.proved(of)
		return
	}
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
	p.l.dead[incarnation] = true
	p.f.log(slog.LevelInfo, "a process of this machine that held the record is dead", "id", p.l.id, "incarnation", incarnation)
}

// bury forgets the dead that hold nothing any more. It is called when this campaign has acquired or released the
// record.
func (p *proofs) bury() {
	for _, id := range p.l.bury() {
		_ = p.line.Bury(id) // it may be buried already
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
		p.f.log(slog.LevelError, "the lifeline is lost: if this process dies, others wait for its term", "id", p.l.id, "err", err)
	}
	p.lost = err != nil
}
