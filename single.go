package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// TryAcquire leads now or not at all: it reads the record once, and claims it if it is
// free. It returns a campaign that leads, or why not, when nothing of it is left: no
// goroutine, no record that it holds. That is a *NotElectedError, which wraps
// ErrNotElected and says who leads, if another has it. It is ErrUnhealthy or ErrClockSkew
// if this candidate may not lead, and the store's error if a call failed.
//
// The campaign is for that one leadership: it ends with it, and Wait returns why it
// ended. To give it up cancel ctx, as with Start, and wait for Done. OnElected is called
// as ever; see [Campaign.Leadership] for its ctx and view. Trying takes at most about a
// term where the store hangs.
//
// With Unsynchronized only a vacant record is free: of a held one nobody who has just
// started can tell whether its term is over.
func (c Config) TryAcquire(ctx context.Context) (*Campaign, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	campaign := start(ctx, c.withDefaults(), &single{})
	// Not with ctx: when that ends the campaign has still to clean up.
	if _, _, err := campaign.Leadership(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return campaign, nil
}

// single is what a campaign knows that leads once at most, and does not wait for that
// without end. It belongs to the loop. A nil one is of a campaign that goes on.
type single struct {
	wait    time.Duration // for how long to try; 0: for one look and one claim
	claimed bool          // it has tried to acquire the record
	err     error         // why the last store call failed that did
}

// looking reports whether one look and one claim are all.
func (s *single) looking() bool { return s != nil && s.wait == 0 }

func (s *single) claims() {
	if s != nil {
		s.claimed = true
	}
}

func (s *single) failed(err error) {
	if s != nil {
		s.err = err
	}
}

// tendSingle ends a campaign that has had its leadership, or that will have none.
func (c *Campaign) tendSingle(wake *alarm) {
	s := c.single
	switch {
	case s == nil || c.stopping || c.leadership != nil:
	case c.last != nil:
		c.stop(wake.now, c.last.cause)
	case s.wait > 0 && wake.now.mono < s.wait:
		wake.at(s.wait)
	case s.wait > 0 || c.hasTried(wake.now):
		c.stop(wake.now, c.whyNot(wake.now))
		if c.attempts.acquiring() {
			c.k.unsure = true // a read shows whether something is to be released
		}
	}
}

// hasTried reports whether one look and one claim have shown that this candidate does not
// lead now. A claim that failed is an open question, until the record is read again.
func (c *Campaign) hasTried(now instant) bool {
	s := c.single
	switch {
	case c.f.call != nil:
		return false
	case c.k.base == nil || c.k.unsure:
		return c.f.reads.fails > 0
	}
	return s.claimed || c.health.sick || c.clockWrong(now) || !c.acquirableAt().reached(now)
}

// whyNot is why this candidate does not lead.
func (c *Campaign) whyNot(now instant) error {
	known := c.k.base != nil
	switch {
	case known && !c.acquirableAt().reached(now):
		return &NotElectedError{Leader: c.Leader()}
	case c.clockWrong(now):
		return c.clockFault(now)
	case c.health.sick:
		return ErrUnhealthy
	case c.single.err != nil && !errors.Is(c.single.err, ErrLostRace):
		return fmt.Errorf("leaderelection: not elected, since the store failed: %w", c.single.err)
	case !known:
		return fmt.Errorf("leaderelection: not elected: the store has not answered within %v", c.single.wait)
	}
	return &NotElectedError{Leader: c.Leader()}
}
