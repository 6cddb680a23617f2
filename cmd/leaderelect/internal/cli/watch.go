package cli

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

func (a *app) watchCommand() *cobra.Command {
	var asJSON, extensions bool
	c := &cobra.Command{
		Use:   "watch [URL]",
		Short: "Print each new leadership, vacancy and lapse",
		Long: `Follow an election without campaigning, and print a line for each new leadership, each
vacancy (the leader has given up), and each lapse (a term ran out unextended, as seen while
the store answered). The first line is the present state. watch ends when it is
interrupted, or when its reader is gone, as in leaderelect watch URL | head -1.

Exit codes: 0 interrupted, or its reader is gone; 1 error; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			return a.printEvents(c.Context(), asJSON, func(ctx context.Context, tell printer) error {
				d, err := a.openStore(ctx, store.Existing(url))
				if err != nil {
					return err
				}
				defer store.Close(d)
				return a.follow(ctx, a.watching(d), func(e state.Event) {
					if e.Event != state.Extension || extensions {
						tell(&e)
					}
				})
			})
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each event as a line of JSON")
	c.Flags().BoolVar(&extensions, "extensions", false, "also print each extension of a term")
	return c
}

// watching is how all commands watch an election.
func (a *app) watching(d leaderelection.RaceDecider) leaderelection.WatchConfig {
	return leaderelection.WatchConfig{
		Decider: d, MaxClockSkew: a.common.skew, ClockPolicy: a.common.clocks, PollInterval: a.common.poll, Logger: a.logger(),
	}
}

// follow calls take with each event of an election until ctx ends.
func (a *app) follow(ctx context.Context, w leaderelection.WatchConfig, take func(state.Event)) error {
	f := state.Follower{Every: a.common.extendEvery}
	w.Lapsed = func(_ context.Context, e leaderelection.RaceEntry) { take(f.Lapsed(&e, time.Now(), w.MaxClockSkew)) }
	return w.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { take(f.Changed(&e, time.Now(), w.MaxClockSkew)) })
}

// printEvents has follow print events until a signal, or who reads them, ends it.
func (a *app) printEvents(ctx context.Context, asJSON bool, follow func(ctx context.Context, tell printer) error) error {
	a.begun(exitError)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	return ended(follow(ctx, a.printer(ctx, asJSON, cancel)))
}

// printer prints an event, as JSON or as its text, and reports whether there is any use in
// printing another one.
type printer func(event interface{ Text() string }) bool

// printer returns one that calls cancel when nobody reads on. It waits for a reader who takes his
// time, until ctx ends.
func (a *app) printer(ctx context.Context, asJSON bool, cancel context.CancelCauseFunc) printer {
	if out, ok := a.out.(*os.File); ok {
		readerGone(out, func() { cancel(errNoReader) })
	}
	var out outbox.Box
	return func(event interface{ Text() string }) bool {
		err := out.Do(ctx, func() error { return a.answer(asJSON, event, func() string { return event.Text() + "\n" }) })
		switch {
		case errors.Is(err, syscall.EPIPE):
			cancel(errNoReader)
		case err != nil:
			cancel(err)
		}
		return err == nil
	}
}
