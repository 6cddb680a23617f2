package leaderelection

import (
	"context"
	"time"
)

// leadership is one time of leading: from the acquisition until its callbacks have
// returned. It belongs to the campaign's loop.
type leadership struct {
	number     ElectionNumber
	held       time.Duration // until when the record is nobody else's to acquire, at least
	view       *TimeView
	ctx        context.Context
	cancel     context.CancelCauseFunc
	confirmed  time.Duration // when the last confirmed write of the lease began
	expiry     time.Time     // the last TermExpiry that was asked for: none is smaller
	end        *viewState    // the view's end that goes with expiry
	callbacks  int           // that have not returned
	begun      chan struct{} // closed when OnElected is about to be called
	cause      error         // why it ended or is ending; nil while leading
	over       bool          // the view has ended
	drainUntil time.Duration
	ousting    context.CancelFunc // ends OnOusting's ctx
}

// tenure is what others may know of the newest leadership. The first is of none: it has
// no ctx.
type tenure struct {
	ctx  context.Context
	view *TimeView
	next chan struct{} // closed when there is a newer one
}

// beginLeadership starts leading by the acquisition a.
func (c *Campaign) beginLeadership(now instant, a *attempt) {
	r := &leadership{number: a.number, held: a.start + c.cfg.Hold, view: newView(c.f.timekeeper, a.number), confirmed: a.start, expiry: a.expiry, end: a.end, begun: make(chan struct{})}
	r.view.begin(a.end)
	if !r.view.ValueInFuture() {
		// Won, but too late to act on it. Counted as a failed write, so that a
		// store slower than the view does not make a hot loop of it.
		c.writes.failed(now.mono)
		return
	}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(c.start))
	c.attempts.won(a)
	c.f.wrote = true // as a read may have shown
	c.leadership = r
	c.extended(now, r, 0, 0) // first: whoever hears of a leadership may ask how long its view is
	c.report(now)            // before anybody is told: whoever is finds that Status says so, too
	close(c.tenure.Swap(&tenure{ctx: r.ctx, view: r.view, next: make(chan struct{})}).next)
	if c.cfg.OnElected == nil {
		close(r.begun)
	} else {
		c.callback(r, func() {
			close(r.begun)
			c.cfg.OnElected(r.ctx, r.view)
		})
	}
}

// callback runs user code of a leadership in a goroutine of its own.
func (c *Campaign) callback(r *leadership, f func()) {
	r.callbacks++
	go func() {
		// Deferred: also when it ended its goroutine, as t.FailNow does.
		defer c.f.post(callbackDone{r})
		f()
	}()
}

// extended tells Trace that the view was moved on.
func (c *Campaign) extended(now instant, r *leadership, extension uint64, left time.Duration) {
	t := c.cfg.Trace
	if t == nil || t.Extended == nil {
		return
	}
	e := ViewExtended{Number: r.number, Extension: extension, Remaining: left, Expiry: r.view.Get()}
	c.f.events.add(func() { t.Extended(e) })
}

// tendLeadership ends what has run its time.
func (c *Campaign) tendLeadership(wake *alarm) {
	r := c.leadership
	if r == nil {
		return
	}
	if !r.over && !r.view.ValueInFuture() {
		c.endLeadership(wake.now, ErrExpired)
	}
	if !r.over {
		wake.atWall(r.view.Get())
		wake.at(r.view.state.Load().mono)
	}
	if r.cause == nil {
		return
	}
	if wake.now.mono >= r.drainUntil {
		r.ousting()
	} else {
		wake.at(r.drainUntil)
	}
	if r.callbacks > 0 {
		return
	}
	// Nothing of this leadership runs any more: only now may it be released, or
	// another begin.
	r.view.end()
	r.ousting()
	c.leadership, c.last, c.idleSince = nil, r, wake.now.mono
	if r.cause == ErrResigned {
		c.cooldown = wake.now.mono + c.cfg.TermLength
	}
}

// tighten brings forward the ends of the view and of what may still begin or move it.
func (c *Campaign) tighten(now instant) {
	if r := c.leadership; r != nil {
		s := r.view.state.Load()
		r.view.replace(s, tighten(s, now))
		r.end = tighten(r.end, now)
	}
	for i := range c.attempts.open {
		a := &c.attempts.open[i]
		a.end = tighten(a.end, now)
	}
}

// giveUp begins to leave by choice: the ctx is cancelled now, the lease is kept
// until the callbacks have returned.
func (c *Campaign) giveUp(now instant, cause error) {
	r := c.leadership
	if r.cause != nil {
		return
	}
	r.cause = cause
	r.cancel(cause)
	r.drainUntil = now.mono + c.cfg.DrainTimeout
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(c.start))
	r.ousting = func() { cancel(context.DeadlineExceeded) }
	if c.cfg.OnOusting != nil {
		c.callback(r, func() {
			<-r.begun // never before OnElected, also where a leadership ends as it begins
			c.cfg.OnOusting(ctx)
		})
	}
}

// endLeadership ends the view at once: it has run out, or the record is another's.
func (c *Campaign) endLeadership(now instant, cause error) {
	r := c.leadership
	r.over = true
	r.view.end()
	c.giveUp(now, cause)
}
