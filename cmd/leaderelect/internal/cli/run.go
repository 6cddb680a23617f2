package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// runFlags are those of commands that run a command as leader.
type runFlags struct {
	grace, drain, hold, delay time.Duration
	entry                     entry
	once, setuid              bool
	onFailure, expiryFile     string
	pass                      passStore
	readiness                 readiness
}

// defaultDrain fits into the 30 s that Kubernetes gives a pod to end.
const defaultDrain = 20 * time.Second

func (r *runFlags) flags(a *app, c *cobra.Command) {
	f := c.Flags()
	f.DurationVar(&r.grace, "grace", 0, "how long the command may take to end when leadership is being lost, before it is killed; must fit into half a term (default a quarter of the term less the skew, 10s at most)")
	f.DurationVar(&r.drain, "drain", defaultDrain, "how long it may take to end when leadership is given up by choice and the lease is kept meanwhile, before it is killed")
	f.DurationVar(&r.delay, "restart-delay", time.Second, "how long to wait before a command that has ended is started again; doubles up to 60 times this, until it runs for 10 times this")
	f.StringVar(&r.onFailure, "on-failure", string(runner.Restart), fmt.Sprintf("when the command fails: restart it (after %d failures in a row, each soon after a start, let another lead for a while), stepdown (at each failure), or exit with its code", runner.Attempts))
	a.choices(c, "on-failure", string(runner.Restart), string(runner.StepDown), string(runner.Exit))
	f.BoolVar(&r.setuid, "allow-setuid", false, "let the command become another user, by sudo or another setuid program, though leaderelect may then not be able to end it (means nothing for root)")
	r.pass.flag(f)
	r.readiness.flags(a, c, whenStanding, true)
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
	}{{"--drain", r.drain}, {"--hold", r.hold}} {
		if d.value < 0 {
			return times, usage("%s is %v, must not be negative", d.name, d.value)
		}
	}
	switch {
	case r.delay < 10*time.Millisecond:
		return times, usage("--restart-delay is %v, must be at least 10ms", r.delay)
	case (r.entry.waits || r.hold > 0) && !r.once:
		return times, usage("--wait and --hold are for --once; --try does without")
	case r.hold > 0 && r.entry.wait > r.hold:
		return times, usage("--wait is %v, must not be longer than --hold (%v): who still waits when that is over would run the command again", r.entry.wait, r.hold)
	}
	if c.unsynchronized && r.hold > 0 {
		return times, usage("--hold is not for --unsynchronized: who has just started cannot tell by its own clock whether a hold is over")
	}
	if err := r.entry.check(); err != nil {
		return times, err
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
		Long: `Campaign in the election, and run COMMAND while leading. When leadership is lost the
command's whole process group is sent SIGTERM, and killed after --grace, so early that it
is dead before another candidate can be elected, also where the store cannot be
reached, and where leaderelect itself is stopped or killed. When leadership is
given up by choice (leaderelect is asked to end, or to hand over), the lease is kept until
the command and all that it has started are dead, and released at once then.

The command finds in its environment

    LEADERELECT_ELECTION     the number of the leadership, greater than all before: a
                             fencing token, to send along with whatever it writes
    LEADERELECT_LEADER_ID    this candidate's name
    LEADERELECT_STORE        the store's URL, unless it has a password (--pass-store)
    LEADERELECT_EXPIRY_FILE  a file, replaced with each extension of the lease: until
                             when it may act as leader, in seconds since 1970, and
                             on a second line as a date
    LEADERELECT_LEASE_ID     with native_lease=true (azblob): the id of Azure's lease,
                             without which the command cannot write the companions

Run it in the foreground: what it leaves running when it ends is ended, too. Unless
leaderelect is root, the command cannot become another user by sudo or another setuid
program: that could not be ended (--allow-setuid).

A command that ends is started again, after a pause that begins with --restart-delay
and doubles. If it fails, --on-failure says what to do:

    restart   start it again; after 5 failures in a row, each soon after a start, step
              down and stay out for the pause: another candidate may be able to run it
    stepdown  do so at the first failure
    exit      release, and exit with its code

Signals (HUP, USR1, USR2, WINCH) are passed on; INT, TERM and QUIT end the command by
the same signal, and then leaderelect; a second one kills it at once. HUP does, too,
where a terminal was closed.

The command has the files that leaderelect was started with, also 3 and more (but for
--ready-fd), and no terminal of its own: it may read and write one, but not open
/dev/tty, and Ctrl-C reaches it by way of leaderelect. NOTIFY_SOCKET, by which systemd
is told READY, STATUS and WATCHDOG, is kept from it, but for --pass-notify.

With --try it is now or not: if another leads, leaderelect ends, and it never stands by,
so that it ends, too, when leadership does.

With --once the exit code is the command's, and 143 or 130 if a TERM or INT came before it
was run. Else it is 0 after INT or TERM, or 137 if the command had to be killed since it had
not ended within --drain. 124, or --not-elected-code: not elected by --try or within --wait,
since another leads, or a hold outlasts the wait; 125: leaderelect itself failed, the store
did not answer within --wait, or leadership was lost before the command had ended; 126, 127:
the command cannot be started, is not there; 2: the command line is wrong.`,
		Example: `  leaderelect run gs://bucket/nightly -- ./report.sh
  leaderelect run --once --wait 20s --hold 40s nats://host/elections/cron -- ./job.sh
  leaderelect run --priority 10 --id zone-a-1 etcd://host/db-primary -- ./primary.sh`,
		Args: commandAfterDash(true),
		RunE: func(c *cobra.Command, args []string) error {
			f.entry.given(c)
			return a.runRun(c.Context(), &f, c, args)
		},
	}
	f.flags(a, c)
	c.Flags().BoolVar(&f.once, "once", false, "run the command once, release, and exit with its code; without --hold each candidate does so, one after the other")
	f.entry.flags(c, "with --once: ")
	c.Flags().DurationVar(&f.hold, "hold", 0, "with --once: for so long after the election nobody is elected again, so that who comes late does not run the command a second time; it is in the record, and no process stays for it")
	return c
}

// commandAfterDash wants at most one argument before --, and a command after it
// where one is required.
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
	tell, err := f.readiness.open(a, cfg.LeaderID)
	if err != nil {
		return err
	}
	a.begun(proc.CodeFailed)
	if _, err := proc.Find(command[0], f.setuid); err != nil {
		return &exit{notStarted(err), err}
	}
	job := newJob(a, f, times, &cfg, url, command)
	if job.flaw != nil {
		return job.flaw
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1) // it mostly sleeps: one thread wakes up for a look at the clock, and no other to help it
	}
	job.runner.Prepare()
	defer job.runner.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, job.runner)() // from here on a log that nobody reads ends nothing
	if f.once && f.hold == 0 && !f.entry.try && !c.Flags().Changed("hold") {
		cfg.Logger.Warn("each candidate will run the command, one after the other: give --hold if one of them is to; --hold 0s says that it is meant so")
	}
	defer f.entry.begin(&cfg, job.runner.GiveUp, cancel)()
	tell.trace(cfg.Trace)
	defer tell.start(ctx)()
	d, err := f.entry.open(ctx, a, url)
	if err != nil {
		return job.outcome(err)
	}
	defer store.Close(d)
	cfg.Decider = d
	return job.outcome(job.campaign(ctx, cancel, cfg, tell.begun))
}

func notStarted(err error) int { return proc.CodeOf(err) }

// job is one candidate that runs a command.
type job struct {
	f      *runFlags
	runner *runner.Runner
	resign func(context.Context)
	flaw   error // why no command could be run
	verdict
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

// errFinished ends a campaign whose command has ended for good.
var errFinished = errors.New("the command has ended")

func newJob(a *app, f *runFlags, times runner.Times, cfg *leaderelection.Config, url string, command []string) *job {
	j := &job{f: f}
	j.runner = runner.New(runner.Config{
		Args: command, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Store: f.pass.store(url), LeaderID: cfg.LeaderID, ExpiryFile: f.expiryFile, Setuid: f.setuid,
		Times: times, Drain: f.drain, Once: f.once, Single: f.entry.try, OnFailure: runner.Policy(f.onFailure), Delay: f.delay,
		Logger: cfg.Logger,
		LeaseID: func(n leaderelection.ElectionNumber) string {
			if d, leases := cfg.Decider.(interface {
				LeaseID(leaderelection.ElectionNumber) string
			}); leases {
				return d.LeaseID(n)
			}
			return ""
		},
		Resign: func(ctx context.Context) { j.resign(ctx) },
		Finish: j.finish,
	})
	j.flaw = j.runner.Check()
	cfg.OnElected, cfg.Healthy = j.runner.Elected, j.runner.Healthy
	cfg.Trace = &leaderelection.Trace{Extended: j.runner.Extended}
	// The runner kills at the end of drain: more is needed only where that
	// does not work at once.
	cfg.DrainTimeout = f.drain + cfg.TermLength
	cfg.Hold = f.hold
	extendFor(times, cfg)
	return j
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
	if j.flaw != nil {
		return j.flaw
	}
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
	return campaign.Wait()
}

// outcome is the exit code, and what to say with it.
func (j *job) outcome(err error) error {
	if verdict, given := j.given(); given {
		return verdict
	}
	var s *signalled
	switch {
	case errors.Is(err, runner.ErrNotElected):
		return j.f.entry.notElected(err)
	case errors.As(err, &s) && j.f.once:
		return &exit{128 + int(s.signal), nil}
	case errors.As(err, &s):
		return nil
	case errors.Is(err, context.Canceled):
		return nil
	}
	return err
}
