package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/early"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/loop"
)

// runFlags are those of commands that run a command as leader.
type runFlags struct {
	commandFlags
	hold          time.Duration
	holdOnSuccess bool
	entry         entry
	once          bool
	expiryFile    string
}

func (r *runFlags) flags(a *app, c *cobra.Command) {
	r.commandFlags.flags(a, c, "how long the command may take to end when leadership is being lost",
		"how long the command may take to end when leadership is given up by choice; then it is killed. The lease is kept meanwhile",
		fmt.Sprintf("when the command fails, without --once: restart it (after %d failures in a row, each soon after a start, step down for a while), stepdown at each failure, or exit with its code", runner.Attempts),
		"let the command become another user, by sudo or another setuid program, although leaderelect may be unable to end it then",
		runner.Restart, runner.StepDown, runner.Exit)
	c.Flags().StringVar(&r.expiryFile, "expiry-file", "", "the file that says until when the command may act as leader (default a new one)")
}

func (r *runFlags) check(c *common) error {
	if err := r.commandFlags.check(c); err != nil {
		return err
	}
	switch {
	case (r.entry.waits || r.hold > 0) && !r.once:
		return usage("--wait and --hold are for --once; --try also works without it")
	case r.hold > 0 && r.hold <= r.entry.wait+c.skew:
		return usage("--hold is %v, must be longer than --wait and --skew together (%v + %v): a candidate that still waits when the hold is over would run the command again", r.hold, r.entry.wait, c.skew)
	case r.holdOnSuccess && r.hold == 0:
		return usage("--hold-on-success needs --hold: how long nobody is elected again after the command has succeeded")
	case r.hold > 0 && c.clocks == leaderelection.Unsynchronized:
		return usage("--hold is not for --clocks unsynchronized: a candidate that has just started cannot tell by its own clock whether a hold is over")
	}
	return r.entry.check()
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use: "run [flags] [URL] -- COMMAND [ARGUMENT...]",

		DisableFlagsInUseLine: true, // cobra writes them last: there they belong to COMMAND

		Short: "Run a command while this process leads",
		Args:  commandAfterDash(true),
		RunE: a.onURLAndCommand(func(c *cobra.Command, url string, command []string) error {
			f.entry.given(c)
			return a.runRun(c.Context(), &f, c, url, command)
		}),
	}
	f.flags(a, c)
	f.lifeline.flag(c, "where to keep the lifeline, so that the next candidate on this machine need not wait for the term when this process, its guard and the command are all dead")
	c.Flags().BoolVar(&f.once, "once", false, "run the command once, release the lease, and exit with the command's code. Without --hold each candidate does so, one after the other")
	f.entry.flags(c, "with --once: ")
	c.Flags().DurationVar(&f.hold, "hold", 0, "with --once: nobody is elected again for this long after the election, so that a late candidate does not run the command a second time. The hold is in the record: no process waits for it")
	c.Flags().BoolVar(&f.holdOnSuccess, "hold-on-success", false, "keep the --hold only if the command ends by itself, with code 0. If not, the next candidate that tries runs it: at once, or after the term if this process dies. For a command that can continue what another has begun")
	return c
}

// commandAfterDash wants at most one argument before --, and a command after it
// if one is required.
func commandAfterDash(required bool) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		dash := c.ArgsLenAtDash()
		switch {
		case dash < 0 && required, dash == len(args):
			return usage("no command: write it after --, as in %s URL -- COMMAND", c.CommandPath())
		case dash > 1, dash < 0 && len(args) > 1:
			return usage("want one URL, and the command after --; got %q", args)
		}
		return nil
	}
}

// onURLAndCommand runs a command whose arguments are the store's URL and, after --, a command.
func (a *app) onURLAndCommand(do func(c *cobra.Command, url string, command []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		var command []string
		if dash := c.ArgsLenAtDash(); dash >= 0 {
			args, command = args[:dash], args[dash:]
		}
		return a.onURL(func(c *cobra.Command, url string) error { return do(c, url, command) })(c, args)
	}
}

func (a *app) runRun(ctx context.Context, f *runFlags, c *cobra.Command, url string, command []string) error {
	if err := f.check(&a.common); err != nil {
		return err
	}
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	tell, err := f.readiness.open(a, cfg.LeaderID)
	if err != nil {
		return err
	}
	a.begun(proc.CodeFailed)
	if err := f.find(command[0]); err != nil {
		return err
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1) // it mostly sleeps: one thread wakes up for a look at the clock, and no other to help it
	}
	line, err := f.lifeline.forCandidate(a)
	if err != nil {
		return err
	}
	if line != nil {
		defer line.Close()
		cfg.Lifeline = line
	}
	job, err := newJob(a, f, &cfg, url, command)
	if err != nil {
		return err
	}
	defer job.runner.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, job.runner)() // from here on a log that nobody reads ends nothing
	if f.once && f.hold == 0 && !f.entry.try && !c.Flags().Changed("hold") {
		cfg.Logger.Warn("each candidate will run the command, one after the other: give --hold to have only one run it, or --hold 0s if each should")
	}
	cfg.Trace = tell.traced(cfg.Trace)
	defer tell.start(ctx)()
	d, err := f.entry.open(ctx, a, url)
	if err != nil {
		return job.outcome(err)
	}
	defer store.Close(d)
	cfg.Decider = d
	return job.outcome(job.campaign(ctx, cancel, cfg, tell.begun))
}

// job is one candidate that runs a command.
type job struct {
	a      *app
	f      *runFlags
	runner *runner.Runner
	verdict

	begun chan struct{}            // closed when the candidate stands
	c     *leaderelection.Campaign // from then on
}

// candidate is the campaign, for its OnElected.
func (j *job) candidate() *leaderelection.Campaign {
	<-j.begun
	return j.c
}

// verdict is how commands have ended for good.
type verdict struct {
	ended context.CancelCauseFunc // of what runs them

	mu       sync.Mutex
	finished bool
	code     int
	why      error
}

// finish notes the first verdict, and has what runs the commands end.
func (v *verdict) finish(code int, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.finished {
		v.finished, v.code, v.why = true, code, why
	}
	v.ended(errFinished)
}

// given is whether there is a verdict, and the exit code with what to say.
func (v *verdict) given() (err error, given bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.finished && v.code != 0 {
		return &exit{v.code, v.why}, true
	}
	return nil, v.finished
}

// newJob returns one whose guard waits already, until its runner is closed, or why no command
// could be run.
func newJob(a *app, f *runFlags, cfg *leaderelection.Config, url string, command []string) (*job, error) {
	j := &job{a: a, f: f, begun: make(chan struct{})}
	c := f.config(url, cfg.LeaderID, command, cfg.Logger)
	c.Stdin, c.ExpiryFile, c.Once, c.Single, c.Finish = os.Stdin, f.expiryFile, f.once, f.entry.try, j.finish
	c.LeaseID = func(n leaderelection.ElectionNumber) string {
		if d, leases := cfg.Decider.(interface {
			LeaseID(leaderelection.ElectionNumber) string
		}); leases {
			return d.LeaseID(n)
		}
		return ""
	}
	c.Resign = func(ctx context.Context) { _ = j.candidate().Resign(ctx) } // with the leader's ctx: it does not wait
	if c.HoldOnSuccess = f.holdOnSuccess; f.once {
		c.DropHold = func() { j.candidate().DropHold() }
	}
	j.runner = runner.New(c)
	if err := j.runner.Check(); err != nil {
		return nil, err
	}
	if err := j.runner.Prepare(); err != nil {
		return nil, err
	}
	cfg.OnElected, cfg.Healthy = j.runner.Elected, j.runner.Healthy
	cfg.Trace = &leaderelection.Trace{Extended: j.runner.Extended}
	// The runner kills at the end of drain: more is needed only if that
	// does not work at once.
	cfg.DrainTimeout = f.drain + cfg.TermLength
	if !f.holdOnSuccess { // else a record says nothing of a hold while the job runs
		f.entry.hold = f.hold
	}
	extendFor(f.times, cfg)
	return j, nil
}

// extendFor has the lease of a command extended as often as its times want, unless
// --extend-every says how often.
func extendFor(times runner.Times, cfg *leaderelection.Config) {
	if cfg.ExtendEvery == 0 {
		cfg.ExtendEvery = times.Extend()
	}
}

// campaign campaigns in the election until ctx ends, and returns the cause. Begun is
// told of it.
func (j *job) campaign(ctx context.Context, cancel context.CancelCauseFunc, cfg leaderelection.Config, begun func(*leaderelection.Campaign)) error {
	j.ended = cancel
	var once *leaderelection.OnceOptions
	if j.f.once || j.f.entry.try {
		once = &leaderelection.OnceOptions{Hold: j.f.hold, HoldOnSuccess: j.f.holdOnSuccess, Wait: j.f.entry.left()}
	}
	var err error
	if j.c, err = start(ctx, cfg, once); err != nil {
		return err
	}
	begun(j.c)
	close(j.begun)
	return j.c.Wait()
}

// outcome is the exit code, and what to say with it.
func (j *job) outcome(err error) error {
	if verdict, given := j.given(); given {
		return verdict
	}
	if verdict, is := j.f.entry.notElected(j.a, err); is {
		return verdict
	}
	if s, interrupted := errors.AsType[*signalled](err); interrupted && j.f.once {
		return &exit{128 + int(s.signal), nil}
	}
	return ended(err)
}

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
