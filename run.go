package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Run is for batch jobs: it waits until this candidate leads, runs job once,
// releases, and returns job's error. Every candidate that calls Run runs its job, one
// after the other: whether the work is done already is for job to find out. If leadership
// ended before job returned, job's ctx was cancelled, and its error is joined with the cause; a job that
// returns nil after a cancellation while its view was still valid has done its
// work as leader, and Run returns nil. Where ctx ends before this candidate ever
// led, Run returns context.Cause(ctx). OnElected must be nil: job is in its
// place.
//
// When ctx ends, or leadership is to be handed over, job's ctx ends, and the view stays true
// for DrainTimeout at most: the one says "begin nothing more", the other "you may still act".
//
// A job that panics ends the process, since it runs in a goroutine of the library: recover inside
// of it. The lease stays then until its term is over, and a Hold until it is.
func (c Config) Run(ctx context.Context, job func(context.Context, *TimeView) error) error {
	return c.run(ctx, "Run", nil, job)
}

// Once is for jobs that are to run at most once in a period, as those of cron on many
// machines: of all candidates that call it in one period, one runs job. The others
// return a *NotElectedError, without waiting for the job to end. Three times matter:
//
//   - wait: for how long to try to be elected. Zero: not at all. The record is read, and
//     claimed if it is free, or another has it. Who is not elected returns when all of it is
//     over, and no sooner. It must not be longer than the Hold: one that still waits when
//     that is over would run the job again.
//   - Config.Hold: for how long from its acquisition nobody else acquires the record,
//     however the job ends. It is kept in the record, so Once returns as soon as job has.
//     It is what keeps a machine that fires late from running the job again. So it must be
//     longer than a machine may be late, plus wait, plus MaxClockSkew, else the job could run
//     twice in a period. And it must be shorter than the period by the time that passes from
//     the firing to the acquisition, and MaxClockSkew.
//   - ctx, which job's ctx is made of: both live for as long as the job may.
//
// So in one period job is begun at most once, while all clocks are within MaxClockSkew,
// and not at all only if the candidate that was elected dies before it has run it, or
// the store fails, or is asked to end or to hand over meanwhile. A job that fails has run: nobody tries again before the Hold is over.
// (One that was elected, but told to stop before the job began, holds nothing.) A job that
// panics ends the process, as with Run, and the Hold stays.
//
// Once returns job's error, as Run does; an error that wraps ErrNotElected where another
// has it; ErrUnhealthy or ErrClockSkew where this candidate may not lead; or the store's
// error: with wait zero after the first call that fails, else the last one's when wait is
// over. Unsynchronized must not be set: one who has just started cannot tell by its own
// clock whether a hold is over.
func (c Config) Once(ctx context.Context, wait time.Duration, job func(context.Context, *TimeView) error) error {
	var faults []error
	if c.Hold == 0 {
		faults = append(faults, errors.New("the Hold is 0, must be positive: without it a machine that is late runs the job a second time"))
	}
	if wait < 0 {
		faults = append(faults, fmt.Errorf("the wait given to Once is %v, must not be negative", wait))
	}
	if c.Hold > 0 && wait > c.Hold {
		faults = append(faults, fmt.Errorf("the wait given to Once is %v, must not be longer than the Hold (%v): one that still waits when that is over runs the job a second time", wait, c.Hold))
	}
	if c.Unsynchronized {
		faults = append(faults, errors.New("the campaign must not be Unsynchronized for Once: one who has just started cannot tell whether a hold is over"))
	}
	return c.run(ctx, "Once", &single{wait: wait}, job, faults...)
}

// run is Run, or Once where s says so.
func (c Config) run(ctx context.Context, name string, s *single, job func(context.Context, *TimeView) error, faults ...error) error {
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
	c.OnElected = func(ctx context.Context, view *TimeView) {
		ran.Store(true)
		result = errors.New("leaderelection: the job ended its goroutine instead of returning")
		defer func() {
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
	err := start(runCtx, c.withDefaults(), s).Wait()
	if ran.Load() {
		return result
	}
	return err
}

// join is errors.Join without saying the same thing twice.
func join(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return errors.Join(err, cause)
}
