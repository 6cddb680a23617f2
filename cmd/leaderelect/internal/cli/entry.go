package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/early"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// exitNotElected is what a candidate that gives up exits with if another led all
// the time, as timeout(1) does.
const exitNotElected = 124

// entry is how a candidate enters the election, and when it gives up.
type entry struct {
	hold  time.Duration // of the job that is run once elected; 0: none
	try   bool
	wait  time.Duration
	waits bool // --wait was given
	code  int
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

// limited reports whether it ever gives up.
func (e *entry) limited() bool { return e.try || e.waits }

// begin starts the wait, if there is a limit to it, until stop is called.
func (e *entry) begin(cfg *leaderelection.Config, giveUp func() bool, cancel context.CancelCauseFunc) (stop func()) {
	if !e.limited() {
		return func() {}
	}
	flag := fmt.Sprintf("--wait %v", e.wait)
	if e.try {
		flag = "--try"
	}
	return newWait(e.wait, e.hold, flag, cfg, giveUp, cancel).begin()
}

// open opens the store.
func (e *entry) open(ctx context.Context, a *app, url string) (leaderelection.RaceDecider, error) {
	if e.limited() && e.wait == 0 {
		return a.openElection(ctx, url, a.openOnce)
	}
	return a.openElection(ctx, url, a.openStore)
}

// notElected is err, which says that another led, as an exit code.
func (e *entry) notElected(err error) error {
	if e.code == 0 {
		return nil
	}
	return &exit{e.code, err}
}

// wait is how long a candidate that runs its command once waits to be elected, from
// before the store is opened. It tells "another leads" from "the store does not
// answer": the one is how it should be, and about the other somebody should know.
type wait struct {
	limit  time.Duration // 0: one try
	flag   string        // that asked for it
	id     string
	term   time.Duration
	skew   time.Duration
	hold   time.Duration // of the job; 0: none
	log    *slog.Logger
	blind  bool        // no clocks are compared: nothing that is held is known to be over
	giveUp func() bool // false: elected already
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	end      time.Time                       // of the wait
	answered bool                            // the store has, once
	newest   leaderelection.RaceEntry        // that it has told of
	trouble  map[leaderelection.OpKind]error // of the last operation of each kind
}

// newWait has cfg tell it what it learns. It begins with begin.
func newWait(limit, hold time.Duration, flag string, cfg *leaderelection.Config, giveUp func() bool, cancel context.CancelCauseFunc) *wait {
	w := &wait{limit: limit, flag: flag, id: cfg.LeaderID, term: cfg.TermLength, skew: cfg.MaxClockSkew, hold: hold, log: cfg.Logger, blind: cfg.ClockPolicy == leaderelection.Unsynchronized,
		giveUp: giveUp, cancel: cancel, trouble: make(map[leaderelection.OpKind]error)}
	cfg.Trace.StoreOp, cfg.Trace.News = w.op, w.news
	if elected := cfg.OnElected; elected != nil {
		cfg.OnElected = func(ctx context.Context, view *leaderelection.TimeView) {
			w.late()
			elected(ctx, view)
		}
	}
	return w
}

// late ends a wait that is over by the wall clock, by which a hold ends. Timers stand still while the
// machine is suspended: the candidate would be elected after the hold of the run that it has missed.
func (w *wait) late() {
	w.mu.Lock()
	over := !w.end.IsZero() && !time.Now().Round(0).Before(w.end.Round(0))
	w.mu.Unlock()
	if over {
		w.over()
	}
}

// begin starts the wait, until stop is called.
func (w *wait) begin() (stop func()) {
	limit := w.limit
	if limit == 0 { // a try is over in the store's time, and never takes a term
		limit = w.term
	}
	w.mu.Lock()
	w.end = time.Now().Add(limit)
	w.mu.Unlock()
	late := time.AfterFunc(limit, w.over)
	return func() { late.Stop() }
}

// over ends the campaign, unless it has been won.
func (w *wait) over() {
	if w.giveUp() {
		w.cancel(w.verdict())
	}
}

// op is told of each answer of the store.
func (w *wait) op(o leaderelection.StoreOp) {
	failed := o.Err != nil && !errors.Is(o.Err, leaderelection.ErrLostRace) // that is an answer, too
	w.mu.Lock()
	if failed {
		w.trouble[o.Kind] = o.Err
	} else {
		w.answered = true
		delete(w.trouble, o.Kind)
	}
	w.mu.Unlock()
	if failed && w.limit == 0 {
		w.over()
	}
}

// news is told of each record, also by a feed.
func (w *wait) news(e leaderelection.RaceEntry) {
	w.mu.Lock()
	w.answered, w.newest = true, e
	hopeless := !w.end.IsZero() && w.outlasts(e)
	w.mu.Unlock()
	if hopeless || w.limit == 0 && w.taken(e) {
		w.over()
	}
}

// outlasts reports whether a job has been done, and its hold keeps others out for longer than the
// wait. While it is being done, its hold may yet be given up.
func (w *wait) outlasts(e leaderelection.RaceEntry) bool {
	return e.Vacant() && e.Hold > 0 && !w.blind && heldUntil(&e).Add(w.skew).After(w.end)
}

// taken reports whether a record has to be waited for. One of this candidate's name may be its own
// acquisition, so that of an earlier process of the name is waited for as long as one try takes.
func (w *wait) taken(e leaderelection.RaceEntry) bool {
	who, until := e.LeaderID, heldUntil(&e).Add(w.skew)
	if e.Vacant() {
		who = e.Successor // "" is nobody: it is free
	}
	return (who != "" || e.Hold > 0) && who != w.id && (w.blind || time.Now().Before(until))
}

// overruns reports whether e is led by a job that has outlasted its hold: one of an earlier period.
func (w *wait) overruns(e *leaderelection.RaceEntry) bool {
	return w.hold > w.term && !e.Vacant() && e.Hold <= 0 && !w.blind && time.Now().Before(e.TermExpiry.Add(w.skew))
}

// verdict is why the candidate was not elected.
func (w *wait) verdict() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []error
	for _, err := range w.trouble {
		all = append(all, err)
	}
	if trouble := errors.Join(all...); trouble != nil {
		return fmt.Errorf("not elected within %s, since the store failed: %w", w.flag, trouble)
	}
	if !w.answered {
		return fmt.Errorf("not elected within %s, since the store did not answer", w.flag)
	}
	if e := &w.newest; w.overruns(e) {
		w.log.Warn("the last run of the job has not ended, though its hold is over: the job is not run this time", "leader", e.LeaderID, "token", uint64(e.ElectionNumber))
	}
	return fmt.Errorf("%w (%s)%s", runner.ErrNotElected, w.flag, w.who(&w.newest))
}

// who says who has the election instead, as far as e tells.
func (w *wait) who(e *leaderelection.RaceEntry) string {
	until := said(heldUntil(e))
	switch {
	case !e.Vacant() && !w.blind && time.Now().After(e.TermExpiry.Add(w.skew)):
		if e.Hold > 0 {
			return fmt.Sprintf(": %s, elected with token %d, does not extend its term any more, and the record is held by its --hold until %s", state.Name(e.LeaderID), e.ElectionNumber, until)
		}
		return fmt.Sprintf(": %s, elected with token %d, does not extend its term any more", state.Name(e.LeaderID), e.ElectionNumber)
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
