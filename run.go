package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/internal/log/durations"
)

// Run waits until this candidate leads, runs job once, releases the record, and returns job's
// error. Use it for a batch job. Every candidate that calls Run runs its job, one after the
// other: job must find out itself whether the work is done already. OnElected must be nil: job
// takes its place.
//
// If leadership ends before job returns, job's ctx is cancelled, and job's error is joined with
// the cause. If job returns nil after the cancellation while its view is still valid, it has done
// its work as leader, and Run returns nil. If ctx ends before this candidate ever led, Run
// returns context.Cause(ctx), as [Config.Acquire] does.
//
// When ctx ends, or the leader is asked to hand over, job's ctx ends and the view stays valid
// for at most DrainTimeout. The ctx says "begin nothing more", the view "you may still act".
//
// If job panics, the process ends, because job runs in a goroutine of the library: recover in
// job. After a panic the lease lasts until its term is over, and a Hold until the Hold is.
func (c Config) Run(ctx context.Context, job func(context.Context, *TimeView) error) error {
	return c.run(ctx, "Run", OnceOptions{}, single{}, job)
}

// OnceOptions are the settings of [Config.Once], in addition to a Config.
type OnceOptions struct {
	// Hold is for how long nobody else may acquire the record, counted from its acquisition,
	// however the job ends (see HoldOnSuccess). It keeps a machine that fires late from running
	// the job again. Required. The record has the Hold, so Once returns as soon as the job has.
	//
	// It must be longer than a machine may be late, plus Wait, plus MaxClockSkew. Otherwise
	// the job could run twice in a period. It must be shorter than the period by the same
	// sum. More than a year counts as a year.
	Hold time.Duration

	// HoldOnSuccess lets the Hold begin only if the job returns nil. Use it for a job that the
	// next candidate can continue. If the job fails, the next candidate that tries runs it at
	// once. If its process dies, the next one runs it as soon as the term is over, as with
	// Config.Run. The job may then run several times in a period, one after the other: also if
	// it has returned nil, but its process died before the record said so.
	HoldOnSuccess bool

	// Wait is for how long to try to be elected. Zero means no wait: Once reads the record, and
	// acquires it if it is free. With a Wait, a candidate that is not elected returns when the
	// Wait is over, by the wall clock or the monotonic clock, whichever comes first. It returns
	// sooner if the job has run, and its Hold outlasts the Wait.
	Wait time.Duration
}

// Once runs job on at most one of the candidates that call it in a period. Use it for a job that
// cron starts on many machines. One candidate runs job. The others return a *NotElectedError,
// without waiting for the job to end. The job's ctx is derived from ctx, so ctx must live for
// as long as the job may run.
//
// In one period job is begun at most once, while all clocks are within MaxClockSkew. It is not
// begun at all only in these cases: the elected candidate dies before it has run job, the store
// fails, or the candidate is asked to end or to hand over meanwhile. With HoldOnSuccess the next
// candidate that tries continues what these have left.
//
// A job that fails has run: nobody tries again before the Hold is over, except with HoldOnSuccess.
// A job that finds that it cannot begin (a missing program, no memory) returns an error that wraps
// ErrNotBegun. Then the record is released without its Hold, and another candidate that still tries
// runs the job. A candidate that was elected, but told to stop before the job began, holds nothing
// either. If job panics, the process ends, as with Run, and the Hold stays.
//
// Once returns:
//
//   - job's error, as Run does;
//   - an error that wraps ErrNotElected, if another candidate has the record;
//   - ErrUnhealthy or ErrClockSkew, if this candidate may not lead;
//   - the store's error: without a Wait that of the first call that fails, else that of the
//     last call when the Wait is over.
//
// The ClockPolicy must not be Unsynchronized: a candidate that has just started cannot tell by
// its own clock whether a hold is over.
func (c Config) Once(ctx context.Context, o OnceOptions, job func(context.Context, *TimeView) error) error {
	return c.run(ctx, "Once", o, single{on: true, wait: o.Wait}, job, o.faults(&c, true)...)
}

// faults are what is wrong with o for Once, or for StartOnce.
func (o *OnceOptions) faults(c *Config, once bool) []error {
	faults := []error{durations.Fault("Hold", o.Hold, durations.Least), durations.Fault("Wait", max(o.Wait, 0), durations.Least)}
	if once {
		faults = append(faults, durations.Fault("Wait", o.Wait, 0))
	}
	if once && o.Hold == 0 {
		faults = append(faults, errors.New("the Hold is 0, must be positive: without it a machine that is late runs the job a second time"))
	}
	if skew := c.skew(); o.Hold > 0 && o.Hold <= o.Wait+skew {
		faults = append(faults, fmt.Errorf("the Hold is %v, must be longer than Wait and MaxClockSkew together (%v + %v): a candidate that still waits when the Hold is over runs the job a second time", o.Hold, o.Wait, skew))
	}
	if c.unsynchronized() && (once || o.Hold > 0) {
		faults = append(faults, errors.New("the ClockPolicy must not be Unsynchronized for Once: a candidate that has just started cannot tell whether a hold is over"))
	}
	return faults
}

// StartOnce is [Config.Once] for a program that runs its job in its own way, in OnElected. The
// campaign leads once, and ends with that leadership: end ctx when the job is done, since the lease
// is kept if OnElected just returns. [Campaign.Wait] returns why. If it has not led, that is what
// Once returns then. If the job was not begun, or if o has HoldOnSuccess and the job has not
// succeeded, call [Campaign.DropHold] before OnElected returns. Unlike for Once, a Hold of zero means
// none, and a negative Wait is without limit.
func (c Config) StartOnce(ctx context.Context, o OnceOptions) (*Campaign, error) {
	return c.startHeld(ctx, o, single{on: true, wait: o.Wait}, o.faults(&c, false)...)
}

// StartHeld is [Config.Start] with a hold. From the beginning of each leadership, nobody else
// acquires the record for the time of hold, whether the leader has released it, has died, or
// leads on. OnceOptions.Hold says how to choose the hold. Zero means no hold.
func (c Config) StartHeld(ctx context.Context, hold time.Duration) (*Campaign, error) {
	return c.startHeld(ctx, OnceOptions{Hold: hold}, single{}, durations.Fault("Hold", hold, durations.Least))
}

func (c Config) startHeld(ctx context.Context, o OnceOptions, s single, faults ...error) (*Campaign, error) {
	if err := c.validate(faults...); err != nil {
		return nil, err
	}
	campaign := newCampaign(ctx, c.withDefaults(), o.Hold, s)
	campaign.l.holdsLate = o.HoldOnSuccess
	if o.Hold > 0 {
		notify(campaign, campaign.cfg.Trace.Job, o.Hold)
	}
	go campaign.loop()
	return campaign, nil
}

// run is Run, or Once if s is on.
func (c Config) run(ctx context.Context, name string, o OnceOptions, s single, job func(context.Context, *TimeView) error, faults ...error) error {
	if c.OnElected != nil {
		faults = append(faults, fmt.Errorf("OnElected must be nil for %s, which has a job in its place", name))
	}
	if job == nil {
		faults = append(faults, fmt.Errorf("the job given to %s is nil", name))
	}
	done := errors.New("leaderelection: the job is done")
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var ran atomic.Bool
	var result error
	var campaign *Campaign
	c.OnElected = func(ctx context.Context, view *TimeView) {
		ran.Store(true)
		result = errors.New("leaderelection: the job ended its goroutine instead of returning")
		defer func() {
			if errors.Is(result, ErrNotBegun) || result != nil && o.HoldOnSuccess {
				campaign.DropHold()
			}
			if result != nil {
				cancel(fmt.Errorf("leaderelection: the job failed: %w", result))
			} else {
				cancel(done)
			}
		}()
		err := job(ctx, view)
		over, cause := !view.ValueInFuture(), context.Cause(ctx)
		if over && cause == nil {
			cause = ErrExpired // ctx is about to say so
		}
		if cause != nil && (err != nil || over) {
			err = join(err, cause)
		}
		result = err
	}
	if err := c.validate(faults...); err != nil {
		return err
	}
	campaign = newCampaign(runCtx, c.withDefaults(), o.Hold, s)
	campaign.l.holdsLate = o.HoldOnSuccess
	notify(campaign, campaign.cfg.Trace.Job, o.Hold)
	campaign.loop()
	if ran.Load() {
		return result
	}
	return campaign.err
}

// join is errors.Join without saying the same thing twice.
func join(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return errors.Join(err, cause)
}

// TryAcquire leads now or not at all. It reads the record once, acquires it if it is free, and
// returns a campaign that leads. Use it if the program has something else to do when another
// candidate leads.
//
// If this candidate does not lead, TryAcquire returns an error. Then nothing of the campaign is
// left: no goroutine, and no record that it holds. The error is:
//
//   - a *NotElectedError, which wraps ErrNotElected and names the leader, if another candidate
//     has the record;
//   - ErrUnhealthy or ErrClockSkew, if this candidate may not lead;
//   - the store's error, if a call failed.
//
// If the store hangs, this takes at most about a term.
//
// The campaign is for that one leadership. It ends with it, and Wait returns why. To give up
// the leadership, cancel ctx and wait for Done, as with Start. OnElected is called as usual.
// [Campaign.Lead] returns the same leadership without it.
//
// With the ClockPolicy Unsynchronized only a vacant record is free: a candidate that has just
// started cannot tell whether the term of a held record is over.
func (c Config) TryAcquire(ctx context.Context) (*Campaign, error) {
	campaign, err := c.StartOnce(ctx, OnceOptions{})
	if err != nil {
		return nil, err
	}
	// Not with ctx: when that ends the campaign has still to clean up.
	l, err := campaign.Lead(context.WithoutCancel(ctx))
	if err != nil {
		return nil, campaign.Wait()
	}
	l.Release()
	return campaign, nil
}

// single is the state of a campaign that leads at most once, and tries for a limited time. It
// belongs to the loop.
type single struct {
	on      bool          // it is such a campaign
	wait    time.Duration // for how long to try; 0: for one look and one claim; negative: until it leads
	claimed bool          // it has tried to acquire the record
	err     error         // of the last store call that failed
}

// looking reports whether the campaign reads and claims only once.
func (s *single) looking() bool { return s.on && s.wait == 0 }

// tend ends a single campaign that has had its leadership, or that will have none.
func (s *single) tend(c *Campaign, wake *alarm) {
	switch {
	case !s.on || c.stopping || c.leadership != nil:
	case c.last != nil:
		c.stop(wake.now, c.last.cause)
	case s.wait < 0:
	case s.wait > 0 && wake.now.mono < s.wait && wake.now.wall.Before(s.waitUntil(c)) && !s.hopeless(c):
		wake.at(s.wait)
		wake.atWall(s.waitUntil(c))
	case s.wait > 0 || s.hasTried(c, wake.now):
		c.stop(wake.now, s.whyNot(c, wake.now))
	}
}

// waitUntil is the end of the wait by the wall clock, by which a Hold ends, too. The monotonic clock
// alone would let a candidate whose machine was suspended, or whose clock was stepped, wait past
// the Hold of the run that it has missed.
func (s *single) waitUntil(c *Campaign) time.Time { return c.Epoch.Round(0).Add(s.wait) }

// hopeless reports whether the record was released, and is on hold until after the wait. Without
// clocks to compare nobody knows.
func (s *single) hopeless(c *Campaign) bool {
	r := c.l.newest.of
	return r != nil && r.Vacant() && r.Hold > 0 && !c.cfg.unsynchronized() && r.TermExpiry.Add(r.Hold).After(s.waitUntil(c))
}

// hasTried reports whether one read and one claim have shown that this candidate does not lead
// now. After a claim that failed, that is open until the record is read again.
func (s *single) hasTried(c *Campaign, now instant) bool {
	switch {
	case c.call != nil:
		return false
	case c.l.base.of == nil || c.l.unsure:
		return c.reads.Fails > 0
	}
	over, _ := c.l.over(now, c.l.mine)
	return s.claimed || c.health.sick || c.l.mistrust || !over
}

// whyNot returns why this candidate does not lead.
func (s *single) whyNot(c *Campaign, now instant) error {
	known := c.l.base.of != nil
	over, _ := c.l.over(now, c.l.mine)
	switch {
	case c.l.mistrust:
		return c.clock.fault()
	case known && !over:
		return &NotElectedError{Leader: c.Leader()}
	case c.health.sick:
		return ErrUnhealthy
	case s.err != nil && !errors.Is(s.err, ErrLostRace):
		return fmt.Errorf("leaderelection: not elected, since the store failed: %w", s.err)
	case !known:
		return fmt.Errorf("leaderelection: not elected: the store has not answered within %v", s.wait)
	}
	return &NotElectedError{Leader: c.Leader()}
}
