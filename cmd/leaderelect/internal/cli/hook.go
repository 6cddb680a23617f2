package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/hook"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type hookFlags struct {
	hook.Config
	atStart   bool
	pass      passStore
	readiness readiness
}

func (a *app) hookCommand() *cobra.Command {
	var f hookFlags
	h := &f.Config
	c := &cobra.Command{
		Use:   "hook [URL] --begin COMMAND --end COMMAND",
		Short: "Run one command when elected, and another when leading ends",
		Long: `Campaign in the election, and run the begin command when elected, and the end command when
no longer the leader. Use it for work that is not a process, such as an address or a mount.

Both commands are given to sh -c. Their environment has LEADERELECT_TOKEN,
LEADERELECT_LEADER_ID and LEADERELECT_STORE (unless the URL has a password: see
--pass-store). What they leave running continues.

Either may run when there is nothing to do, and should succeed then. The end command also
runs at the start, before the election, with LEADERELECT_TOKEN=0: it removes what a crash
of this machine left on.

While the end command fails, hook runs it again, --retry-pause apart, for at most --drain in
all. The lease is kept meanwhile, so that nobody else begins. If the begin command fails,
hook runs the end command, too. If the begin command fails, or the end command never
succeeds, hook logs an error, and stands down for --error-timeout and at least a term.

When leadership is given up by choice, hook keeps the lease until the end command has
succeeded, for at most --drain. A second TERM or INT does not wait for it. When leadership
is being lost, because the store cannot be reached, the end command begins --grace before
the view ends, and should take less than that. If hook must interrupt a command, it sends
TERM, and kills the command a quarter of --grace later.

If leaderelect itself is killed, nobody runs the end command: let the supervisor run it,
too (ExecStopPost= of systemd). For a command that runs all the time use leaderelect run.

To try the commands, elect yourself with a file of your own, as in the second example:
Ctrl-C runs the end command.

Exit codes: 0 ended by INT or TERM; 1 the end command never succeeded; 125 leaderelect
failed; 2 the command line is wrong.`,
		Example: `  leaderelect hook s3://bucket/vip \
      --begin 'ip addr replace 10.0.0.9/32 dev eth0' \
      --end 'ip addr flush dev eth0 to 10.0.0.9/32'
  leaderelect hook file:///tmp/try --begin ./up --end ./down`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error { return a.hook(c.Context(), &f, url) }),
	}
	s := c.Flags()
	s.StringVar(&h.Begin, "begin", "", "the command to run when elected")
	s.StringVar(&h.End, "end", "", "the command to run when no longer the leader")
	s.DurationVar(&h.Pause, "retry-pause", 5*time.Second, "how long to wait before running it again")
	s.DurationVar(&h.Timeout, "command-timeout", time.Minute, "how long either command may take; then it is killed, and has failed")
	s.DurationVar(&h.ErrorTimeout, "error-timeout", 30*time.Second, "how long to stand down after a failure")
	s.DurationVar(&h.Grace, "grace", 0, "how long before the view ends the end command begins, if the lease could not be extended (default a quarter of the term less the skew, 10s at most)")
	s.DurationVar(&h.Drain, "drain", 80*time.Second, "how long the end command may take in all its runs; the lease is kept meanwhile")
	s.BoolVar(&f.atStart, "end-at-start", true, "run the end command before the election, to remove what a crash left on")
	f.pass.flag(s)
	f.readiness.flags(a, c, whenStanding, false)
	return c
}

func (a *app) hook(ctx context.Context, f *hookFlags, url string) error {
	h := f.Config
	times, err := runner.TimesFor(a.common.term, a.common.skew, h.Grace)
	switch {
	case err != nil:
		return &exit{exitUsage, err}
	case h.Begin == "" || h.End == "":
		return usage("--begin and --end are both needed")
	case h.Pause <= 0, h.Timeout <= 0, h.Drain <= 0, h.ErrorTimeout < 0:
		return usage("--error-timeout must not be negative, --retry-pause, --command-timeout and --drain must be positive")
	}
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	extendFor(times, &cfg)
	tell, err := f.readiness.open(a, cfg.LeaderID)
	if err != nil {
		return err
	}
	a.begun(proc.CodeFailed)
	h.Grace, h.Span, h.Leader, h.Logger = times.Grace, times.Span, cfg.LeaderID, cfg.Logger
	h.Store, h.Withheld = f.pass.of(url)
	h.Stdout, h.Stderr = a.out, a.errOut
	var campaign *leaderelection.Campaign
	ready := make(chan struct{})
	h.Resign = func(ctx context.Context) {
		<-ready
		_ = campaign.Resign(ctx) // with the leader's ctx: it does not wait
	}
	toggle := hook.New(h)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signalsTo(cancel, nil, toggle.Interrupt)()
	if f.atStart {
		toggle.Reset(ctx)
	}
	cfg.OnElected, cfg.Healthy, cfg.DrainTimeout = toggle.Elected, toggle.Healthy, h.DrainTimeout()
	cfg.Trace = tell.traced(nil)
	defer tell.start(ctx)()
	d, err := a.openElection(ctx, url, a.openStore)
	if err != nil {
		return ended(err)
	}
	defer store.Close(d)
	cfg.Decider = d
	if campaign, err = start(ctx, cfg, 0, false); err != nil {
		return err
	}
	close(ready)
	tell.begun(campaign)
	err = errors.Join(ended(campaign.Wait()), toggle.Failed())
	if toggle.Failed() != nil {
		return &exit{exitError, err}
	}
	return err
}
