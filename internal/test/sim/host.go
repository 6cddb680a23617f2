package sim

import (
	"context"
	"time"

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
