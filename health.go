package leaderelection

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// health is what a campaign knows from Config.Healthy. It belongs to the loop.
type health struct {
	check    *check // the one in progress
	sick     bool
	fresh    bool          // asked, and well, for the next write
	freshTil time.Duration // and not later than this
	next     time.Duration // when to ask again, while sick
}

// check is one call of Healthy.
type check struct {
	cancel   context.CancelFunc
	deadline time.Duration
	late     bool
	stale    bool // something was written since it was asked: not before the next write
}

// healthy reports whether a write may be made now as far as health goes. Where that
// is not known it asks, and the loop comes back with the answer.
func (c *Campaign) healthy(wake *alarm) bool {
	if c.cfg.Healthy == nil {
		return true
	}
	h := &c.health
	if h.fresh && wake.now.mono < h.freshTil {
		return true
	}
	if h.check == nil {
		c.askHealth(wake)
	}
	return false
}

// askHealth calls Healthy in a goroutine of its own.
func (c *Campaign) askHealth(wake *alarm) {
	ctx, cancel := context.WithCancel(c.f.ctx)
	k := &check{cancel: cancel, deadline: wake.now.mono + c.f.timeout}
	c.health.check = k
	wake.at(k.deadline)
	go func() {
		err := errors.New("leaderelection: Healthy ended its goroutine")
		defer func() {
			cancel()
			c.f.post(healthAnswered{k, err})
		}()
		err = c.cfg.Healthy(ctx)
	}()
}

func (c *Campaign) healthAnswered(a healthAnswered, now instant) {
	c.health.check = nil
	if a.check.late {
		return // late is unhealthy, whatever it says
	}
	c.healthIs(now, a.err)
	c.health.fresh = c.health.fresh && !a.check.stale
}

// healthIs acts on an answer, or on its absence.
func (c *Campaign) healthIs(now instant, err error) {
	h := &c.health
	if err == nil {
		h.sick, h.fresh, h.freshTil = false, true, now.mono+c.f.timeout
		return
	}
	if !h.sick {
		c.f.log(slog.LevelWarn, "not healthy: neither campaigning nor leading", "err", err)
	}
	h.sick, h.next = true, now.mono+c.cfg.PollInterval
	if c.leadership != nil {
		c.giveUp(now, ErrUnhealthy)
	}
}

// tendHealth ends a check that takes too long, and asks again while sick.
func (c *Campaign) tendHealth(wake *alarm) {
	h := &c.health
	if k := h.check; k != nil && !k.late {
		if wake.now.mono < k.deadline {
			wake.at(k.deadline)
			return
		}
		k.late = true
		k.cancel()
		c.healthIs(wake.now, context.DeadlineExceeded)
	}
	if !h.sick || c.stopping {
		return
	}
	switch {
	case wake.now.mono < h.next:
		wake.at(h.next)
	case h.check == nil:
		c.askHealth(wake)
	}
}
