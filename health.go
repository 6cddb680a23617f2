package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// health is what a campaign knows from Config.Healthy. It belongs to the loop.
type health struct {
	c     *Campaign
	check *check // the call in progress
	sick  bool
	well  time.Duration // an answer that it is well counts for one write, until then
	next  time.Duration // when to ask again, while sick
}

// check is one call of Healthy.
type check struct {
	cancel   context.CancelFunc
	deadline time.Duration
	late     bool
	stale    bool // something was written since it was asked, so it does not count for the next write
}

// allows reports whether health allows a write now. If that is not known, it asks, and returns
// false. The answer wakes the loop.
func (h *health) allows(wake *alarm) bool {
	if h.c.cfg.Healthy == nil || wake.now.mono < h.well {
		return true
	}
	if h.check == nil {
		h.ask(wake)
	}
	return false
}

// spend notes that something is written. The next write needs another answer.
func (h *health) spend() {
	if h.well = 0; h.check != nil {
		h.check.stale = true
	}
}

// ask calls Healthy in its own goroutine.
func (h *health) ask(wake *alarm) {
	ctx, cancel := context.WithCancel(h.c.ctx)
	k := &check{cancel: cancel, deadline: wake.now.mono + h.c.timeout}
	h.check = k
	wake.at(k.deadline)
	err := errors.New("leaderelection: Healthy ended its goroutine")
	loop.Go(func() { err = h.c.cfg.Healthy(ctx) }, func() {
		cancel()
		h.c.post(func(now instant) {
			if h.check = nil; !k.late { // late is unhealthy, whatever it says
				h.is(now, err)
			}
			if k.stale {
				h.well = 0
			}
		})
	})
}

// is takes in an answer of Healthy, or its absence.
func (h *health) is(now instant, err error) {
	if err == nil {
		h.sick, h.well = false, now.mono+h.c.timeout
		return
	}
	if !h.sick {
		h.c.log(slog.LevelWarn, "not healthy: neither campaigning nor leading", "err", err)
	}
	h.sick, h.next = true, now.mono+h.c.cfg.PollInterval
}

// tend gives up a check that takes too long, and asks again while the candidate is sick.
func (h *health) tend(wake *alarm, stopping bool) {
	if k := h.check; k != nil && !k.late {
		if wake.now.mono < k.deadline {
			wake.at(k.deadline)
			return
		}
		k.late = true
		k.cancel()
		h.is(wake.now, context.DeadlineExceeded)
	}
	switch {
	case !h.sick || stopping:
	case wake.now.mono < h.next:
		wake.at(h.next)
	case h.check == nil:
		h.ask(wake)
	}
}

// ClockSkewError is an ErrClockSkew with facts. It is the cause of the end of a leader's ctx if
// this machine's clock is proved to be off by more than MaxClockSkew.
type ClockSkewError struct {
	// Offset is how far this machine's clock is ahead of true time, at least. It is negative
	// if the clock is behind. If Bound is true, it is how far the clock may be off in
	// either direction.
	Offset time.Duration
	// Bound says that Offset is the Clock's own bound for its error (see clocks.Bounded), and
	// not a comparison with the store's time.
	Bound bool
	// MaxClockSkew is that of the Config.
	MaxClockSkew time.Duration
}

// Error says by how much the clock is off, and what to do.
func (e *ClockSkewError) Error() string {
	const advice = "repair this machine's time service, or raise MaxClockSkew for all candidates"
	const either = "; if the store's clock is the wrong one, repair that (leaderelect doctor tells which)"
	switch {
	case e.Bound && e.Offset == clocks.Unbounded:
		return fmt.Sprintf("%v of %v: the kernel says that nothing keeps it right: %s", ErrClockSkew, e.MaxClockSkew, advice)
	case e.Bound:
		return fmt.Sprintf("%v of %v: by its own bound it may be off by %v: %s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice)
	case e.Offset < 0:
		return fmt.Sprintf("%v of %v: it is at least %v behind the store's: %s%s", ErrClockSkew, e.MaxClockSkew, -e.Offset, advice, either)
	}
	return fmt.Sprintf("%v of %v: it is at least %v ahead of the store's: %s%s", ErrClockSkew, e.MaxClockSkew, e.Offset, advice, either)
}

// Is reports whether target is ErrClockSkew.
func (e *ClockSkewError) Is(target error) bool { return target == ErrClockSkew }

// clockCheck asks a Clock that knows its own error, and tells what a campaign's lease knows of its clock. It belongs
// to the loop.
type clockCheck struct {
	c       *Campaign
	bounded clocks.Bounded // nil: the Clock does not know its own error
	askNext time.Duration
	mute    bool // it was logged that the Clock cannot tell
	told    bool // it was logged that the clock is wrong
}

// fault returns how far the clock is proved wrong. Call it only if it is.
func (k *clockCheck) fault() *ClockSkewError {
	if off := k.c.l.offset; off != 0 {
		return &ClockSkewError{Offset: off, MaxClockSkew: k.c.l.skew}
	}
	return &ClockSkewError{Offset: k.c.l.bound, Bound: true, MaxClockSkew: k.c.l.skew}
}

// tend asks the Clock for its error, four times a term, and logs what is known.
func (k *clockCheck) tend(wake *alarm) {
	if !k.c.l.checked {
		return
	}
	if k.bounded != nil {
		if wake.now.mono >= k.askNext {
			k.ask(wake.now)
		}
		wake.at(k.askNext)
	}
	switch wrong := k.c.l.mistrust; {
	case wrong && !k.told:
		fault := k.fault()
		k.c.log(slog.LevelError, "the clock is wrong, or the store's is: no wall clock is compared until the two agree", "id", k.c.l.id, "err", fault)
		notify(k.c, k.c.cfg.Trace.ClockSkew, fault)
	case !wrong && k.told:
		k.c.log(slog.LevelInfo, "the clock is no longer proved wrong: a leadership that is marked Unsynchronized stays so until it ends", "id", k.c.l.id)
	}
	k.told = k.c.l.mistrust
}

func (k *clockCheck) ask(now instant) {
	k.askNext = now.mono + k.c.timeout
	bound, err := k.bounded.ErrorBound()
	if err != nil {
		bound = 0
		if !k.mute {
			k.mute = true
			k.c.log(slog.LevelWarn, "the clock cannot tell how far it is off; going by MaxClockSkew and the store's time", "err", err)
		}
	}
	k.c.l.bounded(bound)
}

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
	c           *Campaign
	incarnation string // the newest one of this campaign's, whose death is made provable

	watched string // the incarnation whose death is awaited
	unwatch func()
	lost    bool // it was logged that this process's death cannot be proved
}

// watch asks whether the holder of the record e is dead, and for a report when it dies.
func (p *proofs) watch(e *RaceEntry) {
	if p.c.cfg.Lifeline == nil || e.Incarnation == p.watched {
		return
	}
	p.stop()
	if e.Vacant() || e.Incarnation == p.incarnation || p.c.l.dead[e.Incarnation] {
		return
	}
	of := e.Incarnation
	if p.c.cfg.Lifeline.Dead(of) {
		p.proved(of)
		return
	}
	p.watched, p.unwatch = of, p.c.cfg.Lifeline.OnDeath(of, func() { p.c.post(func(instant) { p.proved(of) }) })
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
	if p.c.cfg.Lifeline != nil {
		p.stop()
		_ = p.c.cfg.Lifeline.End(p.incarnation) // or the name stays until this process ends
	}
}

// proved takes in that the process of an incarnation is proved dead.
func (p *proofs) proved(incarnation string) {
	if incarnation == p.incarnation {
		return // this process lives
	}
	p.c.l.dead[incarnation] = true
	p.c.log(slog.LevelInfo, "a process of this machine that held the record is dead", "id", p.c.l.id, "incarnation", incarnation)
}

// bury forgets the dead that hold nothing any more. It is called when this campaign has acquired or released the
// record.
func (p *proofs) bury() {
	for _, id := range p.c.l.bury() {
		_ = p.c.cfg.Lifeline.Bury(id) // it may be buried already
	}
}

// live makes this process's death provable, before a write of the lease with this incarnation.
func (p *proofs) live(incarnation string) {
	if p.c.cfg.Lifeline == nil {
		return
	}
	if p.incarnation != incarnation {
		_ = p.c.cfg.Lifeline.End(p.incarnation) // or the name stays until this process ends
		p.incarnation = incarnation
	}
	err := p.c.cfg.Lifeline.Live(p.incarnation)
	if err != nil && !p.lost {
		_ = p.c.cfg.Lifeline.End(p.incarnation) // a file that is not locked any more would be a false death
		p.c.log(slog.LevelError, "the lifeline is lost: if this process dies, others wait for its term", "id", p.c.l.id, "err", err)
	}
	p.lost = err != nil
}
