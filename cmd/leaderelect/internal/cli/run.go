package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// exitNotElected is what run --once --wait exits with where another led all the
// time, as timeout(1) does.
const exitNotElected = 124

// runFlags are those of commands that run a command as leader.
type runFlags struct {
	grace, drain, wait, hold, delay time.Duration
	once                            bool
	onFailure, expiryFile           string
}

func (r *runFlags) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&r.grace, "grace", 0, "how long the command may take to end when leadership is being lost, before it is killed; must fit into half a term (default a quarter of the term less the skew, 10s at most)")
	f.DurationVar(&r.drain, "drain", 0, "how long it may take to end when leadership is given up by choice and the lease is kept meanwhile (default as --grace)")
	f.DurationVar(&r.delay, "restart-delay", time.Second, "how long to wait before a command that has ended is started again; doubles up to 60 times this, until it runs for 10 times this")
	f.StringVar(&r.onFailure, "on-failure", string(runner.Restart), "when the command fails: restart it, stepdown (let another lead for a term), or exit with its code")
	a.choices(c, "on-failure", string(runner.Restart), string(runner.StepDown), string(runner.Exit))
	f.StringVar(&r.expiryFile, "expiry-file", "", "where to write until when the command may act as leader (default a file of its own)")
}

func (r *runFlags) check(c *common) (runner.Times, error) {
	times, err := runner.TimesFor(c.term, c.skew, r.grace)
	if err != nil {
		return times, &exit{exitUsage, err}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"--drain", r.drain}, {"--wait", r.wait}, {"--hold", r.hold}} {
		if d.value < 0 {
			return times, usage("%s is %v, must not be negative", d.name, d.value)
		}
	}
	switch {
	case r.delay < 10*time.Millisecond:
		return times, usage("--restart-delay is %v, must be at least 10ms", r.delay)
	case (r.wait > 0 || r.hold > 0) && !r.once:
		return times, usage("--wait and --hold are for --once")
	}
	switch runner.Policy(r.onFailure) {
	case runner.Restart, runner.StepDown, runner.Exit:
	default:
		return times, usage("--on-failure is %q, want restart, stepdown or exit", r.onFailure)
	}
	return times, nil
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [URL] -- COMMAND [ARGUMENT...]",
		Short: "Run a command while this process leads",
		Long: `Contest the election, and run COMMAND while leading. When leadership is lost the
command's whole process group is sent SIGTERM, and killed after --grace, so early that it
is dead before another candidate can be elected, also where the store cannot be
reached, and where leaderelect itself is stopped or killed. When leadership is
given up by choice (leaderelect is asked to end, or to hand over), the lease is kept until
the command and all that it has started are dead, and released at once then.

The command finds in its environment
    LEADERELECT_ELECTION     the number of the reign, greater than all before: a
                             fencing token, to send along with whatever it writes
    LEADERELECT_LEADER_ID    this candidate's name
    LEADERELECT_STORE        the store's URL
    LEADERELECT_EXPIRY_FILE  a file, replaced with each extension of the lease: until
                             when it may act as leader, in seconds since 1970, and
                             on a second line as a date

A command that ends is started again; --on-failure says what else to do when it
failed. Run it in the foreground: what it leaves running when it ends is ended, too.

Signals (HUP, USR1, USR2, WINCH) are passed on; INT, TERM and QUIT end the command by
the same signal, and then leaderelect; a second one kills it at once. HUP does, too,
where a terminal was closed.

With --once the exit code is the command's. Else it is 0 after INT or TERM. 124: not
elected within --wait; 125: leaderelect itself failed, or leadership was lost before
the command had ended; 126, 127: the command cannot be started, is not there.`,
		Example: `  leaderelect run gs://bucket/nightly -- ./report.sh
  leaderelect run --once --wait 20s --hold 40s nats://host/elections/cron -- ./job.sh`,
		Args: commandAfterDash(true),
		RunE: func(c *cobra.Command, args []string) error { return a.runRun(c.Context(), &f, c, args) },
	}
	f.flags(a, c)
	c.Flags().BoolVar(&f.once, "once", false, "run the command once, release, and exit with its code")
	c.Flags().DurationVar(&f.wait, "wait", 0, "with --once: give up (exit code 124) when not elected within this time (default: never)")
	c.Flags().DurationVar(&f.hold, "hold", 0, "with --once: keep the lease this long at least, so that who comes a moment later finds it taken")
	return c
}

// commandAfterDash wants at most one argument before --, and a command after it
// where one is required.
func commandAfterDash(required bool) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		dash := c.ArgsLenAtDash()
		switch {
		case dash < 0 && required, dash == len(args):
			return usage("no command: write it after --, as in leaderelect %s URL -- COMMAND", c.Name())
		case dash > 1, dash < 0 && len(args) > 1:
			return usage("want one URL, and the command after --; got %q", args)
		}
		return nil
	}
}

// splitDash is what stands before -- and what after it.
func splitDash(c *cobra.Command, args []string) (before, after []string) {
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		return args[:dash], args[dash:]
	}
	return args, nil
}

func (a *app) runRun(ctx context.Context, f *runFlags, c *cobra.Command, args []string) error {
	before, command := splitDash(c, args)
	url, _, err := a.url(before)
	if err != nil {
		return err
	}
	times, err := f.check(&a.common)
	if err != nil {
		return err
	}
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	a.begun(proc.CodeFailed)
	if _, err := exec.LookPath(command[0]); err != nil {
		return &exit{notStarted(err), err}
	}
	job := newJob(a, f, times, &cfg, url, command)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, job.runner)()
	d, err := a.openStore(ctx, url)
	if err != nil {
		return job.outcome(err)
	}
	defer store.Close(d)
	cfg.Decider = d
	return job.outcome(job.campaign(ctx, cancel, cfg, func(*leaderelection.Campaign) {}))
}

func notStarted(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return proc.CodeNotFound
	}
	return proc.CodeCannotStart
}

// job is one candidate that runs a command.
type job struct {
	f      *runFlags
	runner *runner.Runner
	resign func(context.Context)
	ended  context.CancelCauseFunc

	mu       sync.Mutex
	finished bool
	code     int
	why      error
}

// errFinished ends a campaign whose command has ended for good.
var errFinished = errors.New("the command has ended")

func newJob(a *app, f *runFlags, times runner.Times, cfg *leaderelection.Config, url string, command []string) *job {
	j := &job{f: f}
	drain := f.drain
	if drain == 0 {
		drain = times.Grace
	}
	j.runner = runner.New(runner.Config{
		Args: command, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Store: url, LeaderID: cfg.LeaderID, ExpiryFile: f.expiryFile,
		Times: times, Drain: drain, Once: f.once, Hold: f.hold, OnFailure: runner.Policy(f.onFailure), Delay: f.delay,
		Logger: cfg.Logger,
		Resign: func(ctx context.Context) { j.resign(ctx) },
		Finish: j.finish,
	})
	cfg.OnElected = j.runner.Elected
	cfg.Trace = &leaderelection.Trace{Extended: j.runner.Extended}
	// The runner kills at the end of drain: more is needed only where that
	// does not work at once.
	cfg.DrainTimeout = drain + cfg.TermLength
	return j
}

// campaign contests the election until ctx ends, and returns the cause. Begun is
// told of it.
func (j *job) campaign(ctx context.Context, cancel context.CancelCauseFunc, cfg leaderelection.Config, begun func(*leaderelection.Campaign)) error {
	j.ended = cancel
	ready := make(chan struct{})
	var campaign *leaderelection.Campaign
	j.resign = func(ctx context.Context) {
		<-ready
		_ = campaign.Resign(ctx) // with the leader's ctx: it does not wait
	}
	campaign, err := cfg.Start(ctx)
	if err != nil {
		return err
	}
	begun(campaign)
	close(ready)
	if j.f.wait > 0 {
		late := time.AfterFunc(j.f.wait, func() {
			if j.runner.GiveUp() {
				cancel(runner.ErrNotElected)
			}
		})
		defer late.Stop()
	}
	return campaign.Wait()
}

func (j *job) finish(code int, why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.finished {
		j.finished, j.code, j.why = true, code, why
	}
	j.ended(errFinished)
}

// outcome is the exit code, and what to say with it.
func (j *job) outcome(err error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var s *signalled
	switch {
	case j.finished && j.code == 0:
		return nil
	case j.finished:
		return &exit{j.code, j.why}
	case errors.Is(err, runner.ErrNotElected):
		return &exit{exitNotElected, fmt.Errorf("%w (--wait %v)", err, j.f.wait)}
	case errors.As(err, &s) && j.f.once:
		return &exit{128 + int(s.signal), nil}
	case errors.As(err, &s):
		return nil
	case errors.Is(err, context.Canceled):
		return nil
	}
	return err
}
