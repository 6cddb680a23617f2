package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

func (a *app) watchCommand() *cobra.Command {
	var asJSON, extensions bool
	c := &cobra.Command{
		Use:   "watch [URL]",
		Short: "Print each new leadership, vacancy and lapse",
		Long: `Follow an election without campaigning, and print a line for each new leadership, each
vacancy (the leader has given up), and each lapse (a term ran out unextended). The first
line is the present state. watch ends when it is interrupted, or when its reader is gone,
as in leaderelect watch URL | head -1.

Exit codes: 0 interrupted, or its reader is gone; 1 error; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			url, _, err := a.url(args)
			if err != nil {
				return err
			}
			a.begun(exitError)
			return a.watch(c.Context(), url, asJSON, extensions)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each event as a line of JSON")
	c.Flags().BoolVar(&extensions, "extensions", false, "also print each extension of a term")
	return c
}

// watch prints each event until a signal, or who reads it, ends it.
func (a *app) watch(ctx context.Context, url string, asJSON, extensions bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	d, err := a.openStore(ctx, url)
	if err != nil {
		return ended(err)
	}
	defer store.Close(d)
	tell := a.printer(asJSON, cancel)
	f := state.Follower{Every: a.common.extendEvery}
	say := func(e state.Event) {
		if e.Event != state.Extension || extensions {
			tell(&e)
		}
	}
	err = leaderelection.WatchConfig{
		Decider: d, MaxClockSkew: a.common.skew, ClockPolicy: policyOf(a.common.skew), PollInterval: a.common.poll, Logger: a.logger(),
		Lapsed: func(_ context.Context, e leaderelection.RaceEntry) { say(f.Lapsed(&e, time.Now(), a.common.skew)) },
	}.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { say(f.Changed(&e, time.Now(), a.common.skew)) })
	return ended(err)
}

// printer returns what prints an event, as JSON or as its text, and reports whether there is
// any use in printing another one. It calls cancel when nobody reads on.
func (a *app) printer(asJSON bool, cancel context.CancelCauseFunc) func(event interface{ Text() string }) bool {
	if out, ok := a.out.(*os.File); ok {
		readerGone(out, func() { cancel(errNoReader) })
	}
	return func(event interface{ Text() string }) bool {
		var err error
		if asJSON {
			err = json.NewEncoder(a.out).Encode(event)
		} else {
			_, err = fmt.Fprintln(a.out, event.Text())
		}
		switch {
		case errors.Is(err, syscall.EPIPE):
			cancel(errNoReader)
		case err != nil:
			cancel(fmt.Errorf("writing the event: %w", err))
		}
		return err == nil
	}
}

// errNoReader is the cause of an end if the reader of the output has closed it.
var errNoReader = fmt.Errorf("%w: nobody reads on", runner.ErrStopped)

// ended is nil if somebody asked for the end.
func ended(err error) error {
	var s *signalled
	if errors.As(err, &s) || errors.Is(err, context.Canceled) || errors.Is(err, errNoReader) {
		return nil
	}
	return err
}
