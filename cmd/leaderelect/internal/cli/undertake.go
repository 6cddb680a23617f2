package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

func (a *app) undertakeCommand() *cobra.Command {
	var dir lifelineDir
	c := &cobra.Command{
		Use:   "undertake URL...",
		Short: "Release the records of this machine's dead leaders",
		Long: `Watch the lifelines of this machine. When a leader's process is dead, release its record, so
that candidates on other machines need not wait for its term. On a store that pushes they
lead at once. undertake does not campaign.

Run one on each machine, for all elections that have candidates there: as a service, or in
Kubernetes as a DaemonSet. It needs the directory that the candidates have as --lifeline.
While no undertaker runs, the others wait for the term as usual. It writes to a record only
if the kernel has proved that the process which holds it is gone. It keeps a hold.

Exit codes: 0 after INT or TERM; 1 error; 2 usage.`,
		Example: `  leaderelect undertake etcd://host/primary s3://bucket/nightly`,
		Args:    cobra.ArbitraryArgs,
		// An argument is a URL, and no file.
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				url, err := a.url(nil)
				if err != nil {
					return err
				}
				args = []string{url}
			}
			return a.undertake(c.Context(), dir, args)
		},
	}
	dir.flag(c, "where this machine's candidates have their lifelines")
	return c
}

// errUndertaker is why an undertaker does not lead.
var errUndertaker = errors.New("this is an undertaker, which stands for no election")

func (a *app) undertake(ctx context.Context, dir lifelineDir, urls []string) error {
	cfg, err := a.candidate()
	if err != nil {
		return err
	}
	for _, url := range urls {
		if _, err := store.Parse(url); err != nil {
			return err
		}
	}
	line, err := dir.open()
	switch {
	case err != nil:
		return fmt.Errorf("no lifelines: %w", err)
	case line == nil:
		return usage("--lifeline none leaves nothing to watch")
	}
	defer line.Close()
	a.begun(exitError)
	cfg.Lifeline = line
	cfg.Healthy = func(context.Context) error { return errUndertaker }
	cfg.OnElected = func(context.Context, *leaderelection.TimeView) {}
	cfg.Logger.Info("watching this machine's lifelines", "dir", line.String())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	var all sync.WaitGroup
	for _, url := range urls {
		all.Go(func() {
			if err := a.undertakeOne(ctx, cfg, url); ended(err) != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return ended(context.Cause(ctx))
}

// undertakeOne follows one record until ctx ends, and returns the cause.
func (a *app) undertakeOne(ctx context.Context, cfg leaderelection.Config, url string) error {
	d, err := a.openElection(ctx, url, a.openStore)
	if err != nil {
		return err
	}
	defer store.Close(d)
	cfg.Decider = d
	return cfg.Acquire(ctx)
}
