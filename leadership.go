package leaderelection

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/internal/loop"
)

// leadership lasts from the acquisition until its work has returned. It follows the lead of the
// campaign's lease, and belongs to the campaign's loop.
type leadership struct {
	c          *Campaign
	number     ElectionNumber
	view       *TimeView
	ctx        context.Context
	cancel     context.CancelCauseFunc
	extension  uint64              // of the last confirmed write
	running    [len(workNames)]int // work that has not returned, by its kind
	begun      chan struct{}       // closed when OnElected is about to be called
	cause      error               // why it ended or is ending; nil while leading
	over       bool                // the view has ended
	overrun    bool                // it was logged that work runs on past DrainTimeout
	drainUntil time.Duration
	ousting    context.CancelFunc // ends OnOusting's ctx
}

// work is a kind of work for which the lease is kept.
type work int

const (
	onElected work = iota
	onOusting
	fromLead
	fromGate
)

var workNames = [...]string{onElected: "OnElected", onOusting: "OnOusting", fromLead: "a Leadership that Lead returned", fromGate: "a request that was let in"}

// follow begins, moves and ends this campaign's leadership with the lead of its lease.
func (c *Campaign) follow(now instant) {
	d, r := c.l.lead, c.leadership
	switch {
	case r == nil && d == nil:
	case r == nil && !c.wants(now): // told to stop, or asked to hand over, before it has begun
		c.l.refuse(ErrResigned)
	case r == nil:
		c.beginLeadership(now, d)
	case r.over:
	case d == nil || d.number != r.number:
		c.endLeadership(now, c.why(c.l.ended))
	default:
		left := r.view.Get().Sub(now.wall)
		if !r.view.move(d.view) {
			c.l.leave(ErrExpired)
			c.endLeadership(now, ErrExpired)
			return
		}
		if e := d.confirmed.of.Extension; e != r.extension {
			r.extension = e
			r.extended(left)
		}
		if d.asked != "" && r.cause == nil {
			c.log(slog.LevelInfo, "asked to hand over", "id", c.cfg.LeaderID, "token", uint64(r.number), "to", d.asked)
			c.giveUp(now, ErrResigned)
		}
	}
}

// why returns the cause with its facts.
func (c *Campaign) why(cause error) error {
	if cause == ErrClockSkew { // it is the lease's own
		return c.clock.fault()
	}
	return cause
}

// beginLeadership starts leading by the lead d.
func (c *Campaign) beginLeadership(now instant, d *lead) {
	r := &leadership{c: c, number: d.number, view: newView(c.timekeeper, d.number), begun: make(chan struct{})}
	if !r.view.begin(d.view) {
		// Won, but too late to act on it. It counts as a failed write. Otherwise a store
		// that is slower than the view would lead to a hot loop.
		c.l.refuse(ErrExpired)
		c.writes.Failed(now.mono, false)
		return
	}
	r.ctx, r.cancel = context.WithCancelCause(WithView(context.WithoutCancel(c.start), r.view))
	c.written = true // as a read may have shown
	c.leadership = r
	c.proofs.bury()
	r.extended(0) // first: a listener may ask how long the view of a new leadership is
	c.view.Store(r.view)
	c.report(now) // after the view, so that who is told that this candidate leads finds its view; before OnElected and Lead
	asks := c.asks
	c.asks = nil
	for _, ask := range asks {
		c.hand(ask)
	}
	if c.cfg.OnElected == nil {
		close(r.begun)
	} else {
		r.callback(onElected, func() {
			close(r.begun)
			c.cfg.OnElected(r.ctx, r.view)
		})
	}
}

// callback runs user code of a leadership in a goroutine of its own.
func (r *leadership) callback(what work, f func()) {
	loop.Go(f, r.begins(what))
}

// begins notes that work of a leadership runs. Call done when the work has ended.
func (r *leadership) begins(what work) (done func()) {
	r.running[what]++
	return func() { r.c.post(func(instant) { r.running[what]-- }) }
}

// busy reports whether work of the leadership runs.
func (r *leadership) busy() bool { return r.running != [len(workNames)]int{} }

// runs names the work of the leadership that runs.
func (r *leadership) runs() string {
	var all []string
	for what, n := range r.running {
		if n > 0 {
			all = append(all, workNames[what])
		}
	}
	return strings.Join(all, " and ")
}

// extended reports to Trace that the view was moved on.
func (r *leadership) extended(left time.Duration) {
	notify(r.c, r.c.cfg.Trace.Extended, ViewExtended{Number: r.number, Extension: r.extension, Remaining: left, Expiry: r.view.Get()})
}

// tendLeadership ends the view, the drain and the leadership when their time has come.
func (c *Campaign) tendLeadership(wake *alarm) {
	r := c.leadership
	if r == nil {
		return
	}
	if !r.over && !r.view.ValueInFuture() {
		c.l.leave(ErrExpired)
		c.endLeadership(wake.now, ErrExpired)
	}
	if r.cause == nil {
		return
	}
	if wake.now.mono >= r.drainUntil {
		r.ousting()
		if r.busy() && !r.overrun {
			r.overrun = true
			c.log(slog.LevelWarn, "leader's work runs on past DrainTimeout: the lease runs out; until the work has ended, this candidate does not lead, and Wait does not return",
				"id", c.cfg.LeaderID, "token", uint64(r.number), "runs", r.runs(), "drain", c.cfg.DrainTimeout)
		}
	} else {
		wake.at(r.drainUntil)
	}
	if r.busy() {
		return
	}
	// No work of this leadership runs any more. Only now may the record be released, or
	// another leadership begin.
	r.view.end()
	c.l.leave(r.cause)
	r.ousting()
	c.leadership, c.last, c.idleSince = nil, r, wake.now.mono
	if r.cause == ErrResigned {
		c.cooldown = wake.now.mono + c.cfg.TermLength
	}
}

// giveUp begins to leave by choice. It cancels the ctx now. The lease is kept until the
// callbacks have returned.
func (c *Campaign) giveUp(now instant, cause error) {
	r := c.leadership
	if r.cause != nil {
		return
	}
	r.cause = cause
	r.cancel(cause)
	if inside := r.begins(fromGate); !r.view.shut(inside) {
		r.running[fromGate]--
	}
	r.drainUntil = now.mono + c.cfg.DrainTimeout
	ctx, cancel := context.WithCancelCause(WithView(context.WithoutCancel(c.start), r.view))
	r.ousting = func() { cancel(context.DeadlineExceeded) }
	if c.cfg.OnOusting != nil {
		r.callback(onOusting, func() {
			<-r.begun // never before OnElected, even if a leadership ends as it begins
			c.cfg.OnOusting(ctx)
		})
	}
}

// endLeadership ends the view at once, because it has run out or another candidate has the
// record.
func (c *Campaign) endLeadership(now instant, cause error) {
	r := c.leadership
	r.over = true
	r.view.end()
	c.giveUp(now, cause)
}

// Leadership is what [Campaign.Lead] returns, for a program without callbacks. The lease is kept
// for it, as for a callback that runs, until Release is called.
type Leadership struct {
	ctx      context.Context
	view     *TimeView
	release  func()
	released atomic.Bool
}

// Context returns the leader's ctx, the same that OnElected gets. Use it for work under this
// leadership. It ends, with a cause, when the leadership has ended or is about to be given up.
func (l *Leadership) Context() context.Context { return l.ctx }

// View returns the leadership's view. Ask it before each act. It has the fencing token.
func (l *Leadership) View() *TimeView { return l.view }

// Release tells the campaign that the caller's work under this leadership is over. It does not
// wait, and may be called more than once. It does not give up leadership: a campaign that leads
// goes on. To give it up, call [Campaign.Resign]. On a zero Leadership it does nothing.
func (l *Leadership) Release() {
	if l.released.CompareAndSwap(false, true) && l.release != nil {
		l.release()
	}
}

// Lead waits until this candidate leads, and returns the leadership. If it leads already, Lead
// returns at once. Use it in place of OnElected.
//
//	for {
//		l, err := campaign.Lead(ctx)
//		if err != nil {
//			return err
//		}
//		work(l.Context(), l.View())
//		l.Release()
//	}
//
// The caller must release the Leadership, as a callback must return. When leadership is given
// up by choice, the lease is kept until the release, for at most DrainTimeout. Until the
// release, the campaign does not lead again, and Wait does not return.
//
// Any number of goroutines may call Lead. Each gets its own Leadership, and the lease is kept
// until all of them are released. Lead does not return a Leadership that is being given up. It
// returns context.Cause(ctx) when ctx ends, and why the campaign stops when it does.
func (c *Campaign) Lead(ctx context.Context) (*Leadership, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	asked := make(leadAsked, 1)
	c.post(func(instant) { c.hand(asked) })
	select {
	case a := <-asked:
		return a.l, a.err
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
	}
	c.post(func(instant) {
		c.asks = slices.DeleteFunc(c.asks, func(a leadAsked) bool { return a == asked })
		select {
		case a := <-asked:
			if a.l != nil {
				a.l.Release() // nobody takes it any more
			}
		default:
		}
	})
	return nil, context.Cause(ctx)
}

// leadAsked is where the answer to a call of Lead goes, which is one of the two. It has room for it.
type leadAsked chan leadAnswer

type leadAnswer struct {
	l   *Leadership
	err error
}

// hand answers a call of Lead if this candidate leads. If not, it keeps the call until it does.
func (c *Campaign) hand(asked leadAsked) {
	r := c.leadership
	if r == nil || r.cause != nil || !r.view.ValueInFuture() {
		c.asks = append(c.asks, asked)
		return
	}
	asked <- leadAnswer{l: &Leadership{ctx: r.ctx, view: r.view, release: r.begins(fromLead)}}
}

// Resign gives up leadership, and keeps this candidate from leading for one term. Use it to let
// another candidate lead, if there is one. The leader's ctx is cancelled with ErrResigned. The
// lease is kept until the callbacks have returned, for at most DrainTimeout, and is then
// released. The campaign goes on. If this candidate does not lead, it only stays out for its
// term.
//
// Resign returns nil when this candidate holds nothing: after the release or, if the store cannot be
// reached, when its term has run out. When ctx ends first, it returns context.Cause(ctx), and
// the resignation goes on. So if OnElected calls Resign with the leader's ctx, it does not wait
// for itself. With another ctx it would wait for itself: then Resign returns an error when the
// view has ended, after DrainTimeout.
func (c *Campaign) Resign(ctx context.Context) error {
	released := make(chan error, 1)
	return c.ask(ctx, func(now instant) { c.resign(now, released) }, released)
}

// DropHold gives up the Hold of the current leadership. Call it before OnElected returns if the
// leader has not begun the job that its Hold protects, and will not begin it, or if others can
// continue the job ([OnceOptions]). The record is then released without a Hold, so
// that others can run the job. DropHold does not wait. If this candidate does not lead, it does
// nothing. A job of [Config.Once] returns ErrNotBegun instead.
func (c *Campaign) DropHold() { c.post(func(instant) { c.l.dropHold() }) }

func (c *Campaign) resign(now instant, released chan error) {
	c.cooldown = max(c.cooldown, now.mono+c.cfg.TermLength)
	if r := c.leadership; r != nil && r.cause == nil {
		c.giveUp(now, ErrResigned)
	}
	c.resigners = append(c.resigners, released)
}

// answerResigners ends the waits in Resign, once this campaign holds nothing, and no write of the last term
// can have made, or still make, it hold something.
func (c *Campaign) answerResigners(wake *alarm) {
	if len(c.resigners) == 0 {
		return
	}
	var err error
	switch r := c.leadership; {
	case r != nil && r.over && wake.now.mono >= r.drainUntil:
		err = fmt.Errorf("leaderelection: Resign: the view has ended, and %s has not returned, so nothing is released: whoever calls Resign from there gives it the leader's ctx", r.runs())
	case r != nil, c.l.holds(wake.now):
		return
	}
	for _, released := range c.resigners {
		released <- err
	}
	c.resigners = nil
}
