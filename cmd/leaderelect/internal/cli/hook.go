package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/hook"
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
		Short: "Run one command when elected, and another when not leader any more",
		Long: `Campaign in the election, and toggle a service: the begin command is run on election, the
end command on loss. Both are given to sh -c, with LEADERELECT_ELECTION,
LEADERELECT_LEADER_ID and LEADERELECT_STORE (unless the URL has a password: --pass-store)
in their environment; what they leave running goes on.

The end command is also run at the start, before the election, with
LEADERELECT_ELECTION=0: for what was left on by a machine that crashed. So it should
succeed if there is nothing to end. The begin command should succeed if it has been
run already.

The end command is run again while it fails (--retries times, --retry-pause apart, for
--drain in all). If the begin command fails (the end command is run then, too), or the end
command never succeeds, this candidate says so loudly and stands down for
--error-timeout, and for a term at least.

When leadership is given up by choice, the lease is kept until the end command has
succeeded, for --drain at most; whoever does not want to wait asks once more (a second
TERM or INT). When leadership is being lost, since the store cannot be reached, the end command
begins --grace before the view ends, and should take less. A command that has to be
interrupted is sent TERM, and is killed a quarter of --grace later.

Nobody runs the end command when leaderelect itself is killed: let its supervisor do that
too (ExecStopPost= of systemd). A command that runs all the time is better off with
leaderelect run.

With console: in place of the URL there is no election: type LEADER, NOTLEADER and
ERROR to try the commands.`,
		Example: `  leaderelect hook s3://bucket/vip --begin 'ip addr replace 10.0.0.9/32 dev eth0' --end 'ip addr flush dev eth0 to 10.0.0.9/32'
  leaderelect hook console: --begin ./up --end ./down`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.hook(c.Context(), &f, args) },
	}
	s := c.Flags()
	s.StringVar(&h.Begin, "begin", "", "what to run on election")
	s.StringVar(&h.End, "end", "", "what to run on loss")
	s.IntVar(&h.Retries, "retries", 12, "how often to try the end command again")
	s.DurationVar(&h.Pause, "retry-pause", 5*time.Second, "how long to wait before that")
	s.DurationVar(&h.Timeout, "command-timeout", time.Minute, "how long either command may take, before it is killed and has failed")
	s.DurationVar(&h.ErrorTimeout, "error-timeout", 30*time.Second, "how long to stand down after a failure")
	s.DurationVar(&h.Grace, "grace", 0, "how long before the view ends unextended the end command begins (default a quarter of the term less the skew, 10s at most)")
	s.DurationVar(&h.Drain, "drain", 80*time.Second, "how long the end command may take in all, while the lease is kept")
	s.BoolVar(&f.atStart, "end-at-start", true, "run the end command before the election, for what a crash may have left on")
	f.pass.flag(s)
	f.readiness.flags(a, c, whenStanding, false)
	return c
}

func (a *app) hook(ctx context.Context, f *hookFlags, args []string) error {
	h := f.Config
	url, _, err := a.url(args)
	if err != nil {
		return err
	}
	times, err := runner.TimesFor(a.common.term, a.common.skew, h.Grace)
	switch {
	case err != nil:
		return &exit{exitUsage, err}
	case h.Begin == "" || h.End == "":
		return usage("--begin and --end are both needed")
	case h.Retries < 0, h.Pause < 0, h.Timeout <= 0, h.Drain <= 0, h.ErrorTimeout < 0:
		return usage("--retries, --retry-pause and --error-timeout must not be negative, --command-timeout and --drain must be positive")
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
	a.begun(exitError)
	h.Grace, h.Span, h.Store, h.Leader, h.Logger = times.Grace, times.Span, f.pass.store(url), cfg.LeaderID, cfg.Logger
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
	if url == "console:" {
		return toggle.Console(ctx, a.in, a.out)
	}
	if f.atStart {
		toggle.Reset(ctx)
	}
	cfg.OnElected, cfg.Healthy, cfg.DrainTimeout = toggle.Elected, toggle.Healthy, h.DrainTimeout()
	cfg.Trace = &leaderelection.Trace{}
	tell.trace(cfg.Trace)
	defer tell.start(ctx)()
	d, err := a.openStore(ctx, url)
	if err != nil {
		return ended(err)
	}
	defer store.Close(d)
	cfg.Decider = d
	if campaign, err = cfg.Start(ctx); err != nil {
		return err
	}
	close(ready)
	tell.begun(campaign)
	return errors.Join(ended(campaign.Wait()), toggle.Failed())
}
