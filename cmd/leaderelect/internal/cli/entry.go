package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/early"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// exitNotElected is what a candidate that gives up exits with if another led all
// the time, as timeout(1) does.
const exitNotElected = 124

// entry is how a candidate that leads once enters the election, and when it gives up.
type entry struct {
	hold  time.Duration // of the job that is run once elected; 0: none
	try   bool
	wait  time.Duration
	waits bool // --wait was given
	code  int
	end   time.Time // of the wait, by the wall clock
}

// flags declares them; with says what --wait needs.
func (e *entry) flags(c *cobra.Command, with string) {
	f := c.Flags()
	f.BoolVar(&e.try, "try", false, "do not wait: end if another candidate leads, and when leadership is over")
	f.DurationVar(&e.wait, "wait", 0, with+"give up if not elected within this time, which includes opening the store; 0s tries once (default: never)")
	f.IntVar(&e.code, "not-elected-code", exitNotElected, "the exit code if not elected by --try or within --wait, because another candidate leads; with 0 nothing is printed either")
}

// given notes what the command line says.
func (e *entry) given(c *cobra.Command) { e.waits = c.Flags().Changed("wait") }

func (e *entry) check() error {
	switch {
	case e.wait < 0:
		return usage("--wait is %v, must not be negative", e.wait)
	case e.try && e.waits:
		return usage("--try and --wait do not go together: --try does not wait at all")
	case e.code < 0 || e.code > 255:
		return usage("--not-elected-code is %d, want 0 to 255", e.code)
	}
	return nil
}

// flag is the one that limits the wait.
func (e *entry) flag() string {
	if e.try {
		return "--try"
	}
	return fmt.Sprintf("--wait %v", e.wait)
}

// open opens the store, with which the wait begins.
func (e *entry) open(ctx context.Context, a *app, url string) (leaderelection.RaceDecider, error) {
	switch {
	case !e.try && !e.waits:
		return a.openElection(ctx, url, a.openStore)
	case e.wait == 0:
		return a.openElection(ctx, url, a.openOnce)
	}
	e.end = time.Now().Round(0).Add(e.wait)
	ctx, cancel := context.WithTimeoutCause(ctx, e.wait, fmt.Errorf("not elected within %s, since the store did not answer", e.flag()))
	defer cancel()
	return a.openElection(ctx, url, a.openStore)
}

// left is what is left of the wait; negative: it has no limit.
func (e *entry) left() time.Duration {
	switch {
	case !e.try && !e.waits:
		return -1
	case e.wait == 0:
		return 0
	}
	return max(e.end.Sub(time.Now().Round(0)), time.Millisecond) // by the wall clock, as a hold ends
}

// notElected is what err means for the exit code, if another has the election by it.
func (e *entry) notElected(a *app, err error) (verdict error, is bool) {
	not, is := errors.AsType[*leaderelection.NotElectedError](err)
	if !is {
		return nil, false
	}
	leader, blind := &not.Leader, a.common.clocks == leaderelection.Unsynchronized
	// One that has outlasted its hold does the job of an earlier period.
	if e.hold > a.common.term && !leader.Vacant() && leader.Hold <= 0 && !blind && time.Now().Before(leader.TermExpiry.Add(a.common.skew)) {
		a.logger().Warn("the last run of the job has not ended, though its hold is over: the job is not run this time", "leader", leader.LeaderID, "token", uint64(leader.ElectionNumber))
	}
	if e.code == 0 {
		return nil, true
	}
	return &exit{e.code, fmt.Errorf("not elected in time (%s)%s", e.flag(), who(leader, a.common.skew, blind))}, true
}

// who says who has the election instead, as far as e tells; blind: without clocks to compare.
func who(e *leaderelection.RaceEntry, skew time.Duration, blind bool) string {
	until := said(heldUntil(e))
	switch {
	case !e.Vacant() && !blind && time.Now().After(e.TermExpiry.Add(skew)):
		s := fmt.Sprintf(": %s, elected with token %d, does not extend its term any more", state.Name(e.LeaderID), e.ElectionNumber)
		if e.Hold > 0 {
			s += ", and the record is held by its --hold until " + until
		}
		return s
	case !e.Vacant():
		return fmt.Sprintf(": %s leads, with token %d", state.Name(e.LeaderID), e.ElectionNumber)
	case e.Hold > 0:
		return fmt.Sprintf(": the leadership with token %d is over, and held by its --hold until %s", e.ElectionNumber, until)
	case e.Successor != "":
		return fmt.Sprintf(": it is reserved for %s until %s", state.Name(e.Successor), until)
	}
	return ""
}

// openPatience is how long one attempt to open a store may take.
const openPatience = 10 * time.Second

// started is how long after the store was opened a command is not starting any more.
const started = time.Second

// openStore opens the store for a command that goes on for long.
func (a *app) openStore(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	return patiently(ctx, a, func() (leaderelection.RaceDecider, error) { return a.openOnce(ctx, url) })
}

// openElection opens the store for a candidate, by open or openOnce, and says which one it is.
func (a *app) openElection(ctx context.Context, url string, open func(context.Context, string) (leaderelection.RaceDecider, error)) (leaderelection.RaceDecider, error) {
	d, err := open(ctx, url)
	if err == nil {
		a.logger().Info("the store is open", "place", placeOf(d))
	}
	return d, err
}

// placeOf is where the record is, as the store itself has resolved its URL: candidates whose
// places differ are in different elections.
func placeOf(d leaderelection.RaceDecider) string {
	if s, says := d.(fmt.Stringer); says {
		return s.String()
	}
	return ""
}

// openGroup opens a group, as openStore does a store.
func (a *app) openGroup(ctx context.Context, url string) (*store.Group, error) {
	return patiently(ctx, a, func() (*store.Group, error) { return a.openGroupOnce(ctx, url, openPatience) })
}

// patiently opens a store that cannot be reached yet again and again. It returns as soon as
// ctx has ended.
func patiently[T any](ctx context.Context, a *app, once func() (T, error)) (opened T, err error) {
	began := time.Now()
	fails := loop.Outage{Over: "the store is open", To: func(level slog.Level, msg string, args ...any) { a.logger().Log(ctx, level, msg, args...) }}
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		opened, err = once()
		switch {
		case err == nil:
			fails.Worked(time.Since(began), "")
			time.AfterFunc(started, early.Over)
			return opened, nil
		case ctx.Err() != nil, errors.Is(err, leaderelection.ErrPermanent), store.Wrong(err):
			return opened, err
		}
		fails.Failed(time.Since(began), "", "the store cannot be opened; trying again", "in", pause, "err", err)
		if !clocks.System().SleepFor(ctx, pause) {
			return opened, fmt.Errorf("%w: the store could not be opened: %w", context.Cause(ctx), err)
		}
	}
}

// openOnce tries once.
func (a *app) openOnce(ctx context.Context, url string) (leaderelection.RaceDecider, error) {
	return once(ctx, func() (leaderelection.RaceDecider, error) { return store.Open(ctx, url, openPatience) })
}

// openGroupOnce tries once.
func (a *app) openGroupOnce(ctx context.Context, url string, patience time.Duration) (*store.Group, error) {
	return once(ctx, func() (*store.Group, error) { return store.OpenGroup(ctx, url, firstRecord, patience) })
}

// once calls open until ctx ends. A driver that ignores its ctx is left behind.
func once[T any](ctx context.Context, open func() (T, error)) (opened T, err error) {
	type answer struct {
		opened T
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		opened, err := open()
		answers <- answer{opened, err}
	}()
	select {
	case o := <-answers:
		if o.err != nil && ctx.Err() != nil {
			return opened, fmt.Errorf("%w: opening the store: %w", context.Cause(ctx), o.err)
		}
		return o.opened, o.err
	case <-ctx.Done():
		return opened, context.Cause(ctx)
	}
}
