package decidertest

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// leaveAlone writes two records whose terms are over, one of them vacant, and returns what
// looks at them when the pause is over. A store that gives records a time to live, or
// that clears away what is over, has them no more: and has given up the fencing token's
// count.
func leaveAlone(h *harness) (look func(t testing.TB)) {
	held := h.state(7, 3)
	held.TermExpiry, held.TermLength, held.Hold = time.Now().Add(-time.Second), time.Millisecond, 0
	vacant := &leaderelection.RaceEntry{TermExpiry: held.TermExpiry, TermLength: held.TermLength, ElectionNumber: 7, Extension: 4, Incarnation: held.Incarnation}
	d, other := h.handle(), h.newElection(h.TB)()
	first := h.write(d, nil, held)
	second := h.write(other, h.write(other, nil, held), vacant)
	over := time.NewTimer(h.Pause)
	return func(t testing.TB) {
		h := *h
		h.TB = t
		<-over.C
		h.readBack(d, held)
		h.readBack(other, vacant)
		h.loses("with a nil Token, after a pause", other, nil, h.state(1, 0))
		h.write(d, first, h.state(8, 0))
		h.write(other, second, h.state(8, 0))
	}
}
