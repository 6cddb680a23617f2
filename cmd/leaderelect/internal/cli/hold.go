package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
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
		Long: `Campaign in the election, and lead without running anything. When elected, print the
election number (the fencing token) as a line, and keep the lease until asked to end by
INT or TERM, or until the pipe to which the line was printed is closed, as when the
script that reads it has ended. The work is taken to be over then: the lease is released
at once.

If it is to be handed over (leaderelect transfer, stepdown, a --priority), print the line
"end", and keep the lease for --drain: end the work then, and this, and the lease is
released to who was asked for. If that takes longer, or leadership is lost, or without
--drain what is printed goes to no pipe, this ends
with code 125, --grace before the view ends at the latest: that is how long the work may
take to end. The lease is not released then, but left to run out.

Nobody ends that work but its owner: where it has to be dead when the lease is over, use
leaderelect run. Until when it may act --expiry-file says, as for run.

A supervisor is told when it leads (--ready-when), by systemd's NOTIFY_SOCKET or by
--ready-fd.

Exit codes: 0 asked to end; 124, or --not-elected-code: not elected by --try or within
--wait, since another leads; 125: leadership was lost, or leaderelect itself failed; 2:
the command line is wrong.`,
		Example: `  coproc LEASE { exec leaderelect hold --try --not-elected-code 0 s3://bucket/nightly; }
  PID=$LEASE_PID
  read -r ELECTION <&"${LEASE[0]}" || { wait "$PID"; exit; }  # 0: another leads
  ./work --fence "$ELECTION"
  kill "$PID"; wait "$PID"`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.entry.given(c)
			return a.hold(c.Context(), &f, args)
		},
	}
	c.Flags().DurationVar(&f.grace, "grace", 0, "how long before the view ends unextended this ends (default a quarter of the term less the skew, 10s at most)")
	c.Flags().DurationVar(&f.drain, "drain", 0, "how long to keep the lease when it is to be handed over (default a term)")
	c.Flags().StringVar(&f.expiryFile, "expiry-file", "", "where to write until when the leader may act (default nowhere)")
	f.entry.flags(c, "")
	f.readiness.flags(a, c, whenLeading, false)
	return c
}

func (a *app) hold(ctx context.Context, f *holdFlags, args []string) error {
	url, _, err := a.url(args)
	if err != nil {
		return err
	}
	times, err := runner.TimesFor(a.common.term, a.common.skew, f.grace)
	if err != nil {
		return &exit{exitUsage, err}
	}
	if f.drain < 0 {
		return usage("--drain is %v, must not be negative", f.drain)
	}
	if err := f.entry.check(); err != nil {
		return err
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
	defer f.entry.begin(&cfg, h.GiveUp, cancel)()
	tell.trace(cfg.Trace)
	defer tell.start(ctx)()
	d, err := f.entry.open(ctx, a, url)
	if err != nil {
		return f.outcome(err)
	}
	cfg.Decider = d
	campaign, err := cfg.Start(ctx)
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
	return f.outcome(campaign.Wait())
}

// outcome is the exit code, and what to say with it.
func (f *holdFlags) outcome(err error) error {
	if errors.Is(err, runner.ErrNotElected) {
		return f.entry.notElected(err)
	}
	return ended(err)
}

// isPipe reports whether f is a pipe.
func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}
