package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/hook"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

type holdFlags struct {
	grace      time.Duration
	drain      time.Duration
	expiryFile string
	entry      entry
	readiness  readiness
}

func (a *app) holdCommand() *cobra.Command {
	var f holdFlags
	c := &cobra.Command{
		Use:   "hold [URL]",
		Short: "Lead without a command, for a script or another unit",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			f.entry.given(c)
			return a.hold(c.Context(), &f, url)
		}),
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, "how long before its view ends hold ends, if the lease could not be extended (default a quarter of the term less the skew, 10s at most)")
	c.Flags().DurationVar(&f.drain, "drain", 0, "how long to keep the lease when another candidate is to lead (default a term)")
	c.Flags().StringVar(&f.expiryFile, "expiry-file", "", "the file that says until when the leader may act (default none)")
	f.entry.flags(c, "")
	f.readiness.flags(a, c, whenLeading, false)
	return c
}

func (a *app) hold(ctx context.Context, f *holdFlags, url string) error {
	times, err := runner.TimesFor(a.common.term, a.common.skew, f.grace)
	if err != nil {
		return &exit{exitUsage, err}
	}
	if err := f.entry.check(); err != nil {
		return err
	}
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	extendFor(times, &cfg)
	a.patience = min(flushPatience, times.Margin) // the grace is the work's
	tell, err := f.readiness.open(a, cfg.LeaderID)
	if err != nil {
		return err
	}
	tell.says = true
	a.begun(proc.CodeFailed)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := make(chan error, 1)
	out, isFile := a.out.(*os.File)
	read := isFile && isPipe(out)
	h := runner.NewHolder(runner.HolderConfig{
		Times: times, ExpiryFile: f.expiryFile, Out: a.out, Logger: cfg.Logger,
		Begun: tell.leads, Stopped: ctx, Waits: read || f.drain > 0,
		Failed: func(err error) { cancel(&exit{proc.CodeFailed, err}) },
		Lost:   func(err error) { lost <- err },
	})
	if err := h.Check(); err != nil {
		return err
	}
	if read { // what else is closed is not its reader
		readerGone(out, func() { cancel(errNoReader) })
	}
	cfg.DrainTimeout = f.drain
	cfg.OnElected, cfg.Trace = h.Elected, &leaderelection.Trace{Extended: h.Extended}
	defer a.signals(cancel, nil)()
	cfg.Trace = tell.traced(cfg.Trace)
	defer tell.start(ctx)()
	d, err := f.entry.open(ctx, a, url)
	if err != nil {
		return f.outcome(a, err)
	}
	cfg.Decider = d
	campaign, err := start(ctx, cfg, &leaderelection.OnceOptions{Wait: f.entry.left()})
	if err != nil {
		store.Close(d)
		return err
	}
	tell.begun(campaign)
	select {
	case err := <-lost: // without a release, which store.Close might wait for
		return err
	case <-campaign.Done():
	}
	store.Close(d)
	return f.outcome(a, campaign.Wait())
}

// outcome is the exit code, and what to say with it.
func (f *holdFlags) outcome(a *app, err error) error {
	if verdict, is := f.entry.notElected(a, err); is {
		return verdict
	}
	return ended(err)
}

// isPipe reports whether f is a pipe.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

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
		Args:  cobra.MaximumNArgs(1),
		RunE:  a.onURL(func(c *cobra.Command, url string) error { return a.hook(c.Context(), &f, url) }),
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
	case h.Pause == 0, h.Timeout == 0, h.Drain == 0:
		return usage("--retry-pause, --command-timeout and --drain must be positive")
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
	if campaign, err = start(ctx, cfg, nil); err != nil {
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
