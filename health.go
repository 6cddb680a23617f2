package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// health is what a campaign knows from Config.Healthy. It belongs to the loop.
type health struct {
	f     *follower
	of    func(context.Context) error // nil: always well
	every time.Duration               // how soon after an answer that it is sick to ask again

	check    *check // the call in progress
	sick     bool
	fresh    bool          // it was asked for the next write, and is well
	freshTil time.Duration // fresh counts until then
	next     time.Duration // when to ask again, while sick
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
	if h.of == nil || h.fresh && wake.now.mono < h.freshTil {
		return true
	}
	if h.check == nil {
		h.ask(wake)
	}
	return false
}

// spend notes that something is written. The next write needs another answer.
func (h *health) spend() {
	h.fresh = false
	if h.check != nil {
		h.check.stale = true
	}
}

// ask calls Healthy in its own goroutine.
func (h *health) ask(wake *alarm) {
	ctx, cancel := context.WithCancel(h.f.ctx)
	k := &check{cancel: cancel, deadline: wake.now.mono + h.f.timeout}
	h.check = k
	wake.at(k.deadline)
	go func() {
		err := errors.New("leaderelection: Healthy ended its goroutine")
		defer func() {
			cancel()
			h.f.post(healthAnswered{k, err})
		}()
		err = h.of(ctx)
	}()
}

func (h *health) answered(a healthAnswered, now instant) {
	h.check = nil
	if a.check.late {
		return // late is unhealthy, whatever it says
	}
	h.is(now, a.err)
	h.fresh = h.fresh && !a.check.stale
}

// is takes in an answer of Healthy, or its absence.
func (h *health) is(now instant, err error) {
	if err == nil {
		h.sick, h.fresh, h.freshTil = false, true, now.mono+h.f.timeout
		return
	}
	if !h.sick {
		h.f.log(slog.LevelWarn, "not healthy: neither campaigning nor leading", "err", err)
	}
	h.sick, h.next = true, now.mono+h.every
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
	if !h.sick || stopping {
		return
	}
	switch {
	case wake.now.mono < h.next:
		wake.at(h.next)
	case h.check == nil:
		h.ask(wake)
	}
}

// endSick gives up the leadership of a candidate that is sick.
func (c *Campaign) endSick(wake *alarm) {
	if r := c.leadership; c.health.sick && r != nil && r.cause == nil {
		c.giveUp(wake.now, ErrUnhealthy)
		wake.at(wake.now.mono) // for tendLeadership
	}
}
