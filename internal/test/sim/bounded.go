package sim

import (
	"errors"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
)

// boundedClock is a Clock that knows how far it may be off.
type boundedClock struct {
	*Clock
	h *host
}

var _ clocks.Bounded = boundedClock{}

// errNoBound is what a clock says that cannot tell.
var errNoBound = errors.New("sim: adjtimex: operation not permitted")

// ErrorBound is what the host says of its clock.
func (b boundedClock) ErrorBound() (time.Duration, error) {
	b.h.w.rec.mu.Lock()
	defer b.h.w.rec.mu.Unlock()
	return b.h.says, b.h.saysNot
}

// doubt has the host's clock say something else of itself: that it is well, that it is
// off by more than anybody's MaxClockSkew, or that it cannot tell.
func (h *host) doubt(well bool) {
	if !h.bounded {
		return
	}
	w := h.w
	w.rec.mu.Lock()
	defer w.rec.mu.Unlock()
	h.says, h.saysNot = w.Skew/2, nil
	n := 0
	if !well {
		n = w.rng.IntN(5)
	}
	switch n {
	case 1:
		h.saysNot = errNoBound
	case 2:
		h.says = clocks.Unbounded
	case 3, 4:
		h.says = w.mostSkew() + w.between(1, w.Term)
	}
	if h.badSince != 0 {
		h.badUntil = w.now()
	}
	switch bad := h.saysNot == nil && h.says > w.mostSkew(); {
	case !bad:
		h.badSince = 0
	case h.badSince == 0:
		h.badSince, h.wasBad = max(w.now(), 1), true
		w.rec.counts["clocks that said that they were off"]++
	}
	w.rec.logf(h.id, "its clock says of itself: %v, %v", h.says, h.saysNot)
}

// owns: a leader whose clock says that it is off by more than MaxClockSkew leads for a
// quarter of a term more at most, after which it is asked. With the lock.
func (r *recorder) owns(g *leadership) {
	h, now := g.p.host, r.now()
	if h.badSince == 0 || g.p.measures(g.number) {
		return
	}
	since := max(h.badSince, h.clock.Disturbed())
	if limit := g.p.term/4 + time.Second; now-since > limit {
		r.failf(g.p.name, "leads though its clock has said for %v that it is off by %v", now-since, h.says)
	}
}
