package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
)

// host is a machine: a clock, a link, and the process that runs on it, if any.
type host struct {
	w              *world
	id             string
	kind           clockKind
	unsynchronized bool // its clock is not to be compared with others' (Unsynchronized)
	bounded        bool // its clock knows how far it may be off
	skewed         bool // its clock may be beyond its bound, whatever the others' are
	clock          *Clock
	link           *Link
	thaw           func() // while frozen
	suspended      bool   // as well
	proc           *process
	gen            int // of its processes
	all            []*process

	// Under the recorder's lock:
	says     time.Duration // what a bounded clock says
	saysNot  error
	badSince time.Duration // since when that is more than anybody's MaxClockSkew; 0: it is not
	badUntil time.Duration // when it last was
	wasBad   bool
}

// clockKind is what sort of clock a host has.
type clockKind int

const (
	stepping clockKind = iota // drifts and is stepped, and has Monotonic
	carries                   // a constant offset, and readings that carry a monotonic one
	system                    // clocks.System: true time
)

// theClock is what the process on the host is given.
func (h *host) theClock() clocks.Clock {
	switch h.kind {
	case carries:
		return carrying{h.clock}
	case system:
		return nil
	}
	if h.bounded {
		return boundedClock{h.clock, h}
	}
	return h.clock
}

// crash ends the process without a word: nothing that it does from now on counts.
func (h *host) crash() {
	h.w.rec.note(h.proc.name, "crashes")
	h.strike("crashed")
	h.w.rec.dies(h.proc)
	h.proc.actor.dead.Store(true)
	h.w.kernels.died()
	h.resume()
	h.proc.cancel(errDead)
	h.proc = nil
}

// leave tells the process to stop; a frozen one hears of it when it resumes.
func (h *host) leave() {
	h.w.rec.note(h.proc.name, "is told to stop")
	h.strike("was told to stop")
	h.proc.quit()
	h.proc = nil
}

// freeze stops the process; with suspend its monotonic clock as well.
func (h *host) freeze(suspend bool) {
	if h.thaw != nil || h.kind == system {
		return
	}
	suspend = suspend && h.kind == stepping
	h.w.rec.note(h.id, "freezes (suspended: %v)", suspend)
	h.suspended = suspend
	h.thaw = h.clock.Freeze(suspend)
}

// role is what a host's process is to the election.
type role int

const (
	none role = iota
	leading
	past // its view is over, and its ctx is live
)

// leads says what the host's process is.
func (h *host) leads() role {
	if h.proc == nil {
		return none
	}
	h.w.rec.mu.Lock()
	defer h.w.rec.mu.Unlock()
	switch g := h.proc.current; {
	case g == nil || g.done || !g.acts():
		return none
	case g.inFuture():
		return leading
	}
	return past
}

// strike counts what happens to a host whose process leads.
func (h *host) strike(what string) {
	if h.leads() == leading {
		h.w.rec.count("fault: a leader " + what)
	}
}

func (h *host) resume() {
	if h.thaw != nil {
		h.w.rec.note(h.id, "resumes")
		h.thaw()
		h.thaw = nil
		if h.leads() == past {
			h.w.rec.count("fault: a leader was " + map[bool]string{true: "suspended", false: "frozen"}[h.suspended] + " past its view")
		}
	}
}

// step sets the host's clock, within its bounds, where it is one that can be set.
func (h *host) step() {
	if h.kind != stepping {
		return
	}
	h.strike("had its clock stepped")
	switch {
	case h.unsynchronized && h.w.rng.IntN(3) == 0:
		h.clock.Step(h.w.apart())
	case h.unsynchronized: // by seconds: about as much as there is time for anybody to notice
		wall, _ := h.clock.Both()
		off := wall.Sub(h.w.epoch.Round(0)) - h.w.now()
		h.clock.Step(off + h.w.between(-h.w.Term, h.w.Term/2))
	case h.skewed:
		h.clock.Step(h.w.lie())
	default:
		h.clock.Step(h.w.offset())
	}
	h.w.rec.mu.Lock()
	for _, p := range h.all {
		p.robberies = 0
	}
	h.w.rec.mu.Unlock()
	wall, _ := h.clock.Both()
	h.w.rec.note(h.id, "its clock is stepped to %v", wall.Sub(h.w.epoch.Round(0))-h.w.now())
}

// resign calls Resign from outside, and waits for it for a while.
func (h *host) resign(timeout time.Duration) {
	p := h.proc
	if p.campaign == nil {
		return
	}
	h.w.rec.note(p.name, "is told to resign")
	h.strike("was told to resign")
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_ = p.campaign.Resign(ctx)
	}()
}

// settings are one process's own part of its Config. Processes of one election may
// differ, as when a fleet is upgraded: what has to agree is that MaxClockSkew is at
// least what the clocks keep.
type settings struct {
	term, skew     time.Duration
	poll, drain    time.Duration
	unsynchronized bool // Unsynchronized is set
	hold, extend   time.Duration
	priority       int
}

// settings draws those of a process that starts on the host.
func (w *world) settings(h *host) settings {
	s := settings{term: w.Term, skew: w.Skew, poll: w.Poll, drain: w.Drain, unsynchronized: h.unsynchronized}
	if w.Mixed {
		w.mix(&s)
	}
	if s.unsynchronized && s.skew == 0 {
		s.skew = time.Microsecond // zero would mean the default
	}
	w.wish(&s)
	return s
}

// wish draws what a process asks for beyond its lease.
func (w *world) wish(s *settings) {
	if w.Hold > 0 && w.wishes.IntN(3) > 0 {
		s.hold = max(time.Duration(w.wishes.Int64N(int64(w.Hold)+1)), time.Millisecond) // StartHeld refuses less
	}
	if w.Ranks > 0 {
		s.priority = w.wishes.IntN(w.Ranks) - 1
	}
	if w.Paced && w.wishes.IntN(2) == 0 {
		low, most := s.term/20, (s.term-s.skew)/2
		s.extend = low + time.Duration(w.wishes.Int64N(int64(most-low)+1))
	}
}

// extendEvery is the shortest time between two extensions: half of an ExtendEvery after a failure.
func (s *settings) extendEvery() time.Duration {
	if s.extend == 0 {
		return s.span() / 2
	}
	return s.extend / 2
}

// mix has a process's durations differ from those of the others.
func (w *world) mix(s *settings) {
	if w.rng.IntN(2) == 0 {
		s.skew = w.between(w.Skew, w.mostSkew()+1)
	}
	s.term = max(s.term, 2*s.skew)
	if w.rng.IntN(2) == 0 {
		s.term = w.between(max(w.Term/2, 2*s.skew, le.MinTermLength), w.longest()+1)
	}
	s.poll = 0
	if w.rng.IntN(2) == 0 {
		s.poll = w.between(s.term/10, w.longest()+1)
	}
	s.drain = s.term
	if w.rng.IntN(3) == 0 {
		s.drain = w.between(s.term/10, 3*s.term)
	}
	s.unsynchronized = s.unsynchronized || w.Unsynchronized > 0 && w.rng.IntN(5) == 0
}

// span is how long a view lasts from when its term was asked for.
func (s *settings) span() time.Duration { return s.term - s.skew }

// allowance is what two monotonic clocks may run apart in a term of that length.
func (s *settings) allowance(term time.Duration) time.Duration { return max(s.skew, term/100) }

// pollEvery is PollInterval, or what stands for it.
func (s *settings) pollEvery() time.Duration {
	if s.poll == 0 {
		return s.term / 2
	}
	return s.poll
}

// longest is the greatest TermLength of a process.
func (p *Params) longest() time.Duration {
	if p.Mixed {
		return p.Term + p.Term/2
	}
	return p.Term
}

// mostSkew is the greatest MaxClockSkew of a process.
func (p *Params) mostSkew() time.Duration {
	if p.Mixed {
		return p.Skew + p.Skew/2
	}
	return p.Skew
}

// kernels are what the machines' kernels know of the lifelines of their processes. There are two
// machines: what a host is otherwise is a container there, with a clock of its own.
type kernels struct {
	mu      sync.Mutex
	files   map[string]*process // by incarnation
	watches map[*death]struct{}
}

// death is what somebody waits for.
type death struct {
	of   string
	by   *process
	tell func()
}

// lifeline is a process's le.Lifeline.
type lifeline struct{ p *process }

func (p *process) machine() int { return int(p.host.id[0]) % 2 }

var errNoLifeline = errors.New("sim: no room for a lifeline")

func (l lifeline) Live(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case l.p.lifeless:
		return errNoLifeline
	case !l.p.actor.dead.Load():
		k.files[incarnation] = l.p
	}
	return nil
}

func (l lifeline) End(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.files[incarnation] == l.p && !l.p.actor.dead.Load() {
		delete(k.files, incarnation)
	}
	return nil
}

func (l lifeline) Dead(incarnation string) bool {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead(incarnation, l.p)
}

// dead reports whether the process of an incarnation is dead, as one on its machine can prove.
func (k *kernels) dead(incarnation string, by *process) bool {
	of := k.files[incarnation]
	return of != nil && of.actor.dead.Load() && of.machine() == by.machine()
}

func (l lifeline) OnDeath(incarnation string, tell func()) (stop func()) {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	d := &death{incarnation, l.p, tell}
	k.watches[d] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.watches, d)
	}
}

func (l lifeline) Bury(incarnation string) error {
	k := &l.p.host.w.kernels
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead(incarnation, l.p) {
		delete(k.files, incarnation)
	}
	return nil
}

// died tells those who wait for it that a process has.
func (k *kernels) died() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for d := range k.watches {
		if k.dead(d.of, d.by) {
			delete(k.watches, d)
			go d.tell()
		}
	}
}

// lifeline is what the process is given, if any: some have none, and of some nobody will ever
// prove that they are dead.
func (p *process) lifeline(rng *rand.Rand) le.Lifeline {
	if !p.host.w.Lifelines || rng.IntN(5) == 0 {
		return nil
	}
	p.lifeless = rng.IntN(8) == 0
	p.lifelined = true
	return lifeline{p}
}

// dies tells the specification of a death that somebody can prove.
func (r *recorder) dies(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range p.incarnations {
		if p.lifelined && !p.lifeless {
			r.spec.Died(r.epoch.Add(r.now()), i)
		}
	}
}

// proved reports whether p can have proof that nobody who lives holds the record e.
func (r *recorder) proved(p *process, e *le.RaceEntry) bool {
	if e.Vacant() || !p.lifelined {
		return false
	}
	for _, h := range p.host.w.hosts {
		for _, of := range h.all {
			if of.incarnations[e.Incarnation] && of != p {
				return of.actor.dead.Load() && of.lifelined && !of.lifeless && of.machine() == p.machine()
			}
		}
	}
	return false
}
