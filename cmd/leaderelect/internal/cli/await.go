package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// awaited is what wait waits for.
type awaited struct {
	id      string // empty: any candidate
	after   uint64 // no election up to this
	timeout time.Duration
}

func (w *awaited) is(s *state.State) bool {
	return s.State == state.Led && (w.id == "" || s.LeaderID == w.id) && s.Token > w.after
}

func (a *app) waitCommand() *cobra.Command {
	var w awaited
	var asJSON bool
	c := &cobra.Command{
		Use:   "wait [URL]",
		Short: "Wait until somebody leads",
		Long: `Follow the election without campaigning until somebody leads, and print the leader as
status does. Use it in a script that must not begin before there is a leader. If the store
cannot be reached yet, wait tries again.

Exit codes: 0 somebody leads; 1 nobody did within --timeout, or with --check-id or --after
not the leadership that you wait for; 2 error, also if the store did not respond within
--timeout; 130, 143 interrupted.`,
		Example: `  leaderelect wait --timeout 1m s3://bucket/app && ./start-clients`,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			a.begun(exitUsage) // errors are 2 here, as for status
			s, err := a.await(c.Context(), url, &w)
			if err != nil {
				return err
			}
			return a.answer(asJSON, s, s.Text)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&w.id, "check-id", "", "wait until this candidate leads")
	c.Flags().Uint64Var(&w.after, "after", 0, "wait for a leadership with a fencing token greater than this")
	c.Flags().DurationVar(&w.timeout, "timeout", 0, "how long to wait (default without limit)")
	return c
}

// await follows the election until what is awaited is so.
func (a *app) await(ctx context.Context, url string, w *awaited) (state.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	if w.timeout > 0 {
		late := time.AfterFunc(w.timeout, func() { cancel(errTimeout) })
		defer late.Stop()
	}
	d, err := a.openStore(ctx, store.Existing(url))
	if err != nil {
		return state.State{}, w.verdict(err, false, nil)
	}
	defer store.Close(d)
	var last *state.State
	var answered atomic.Bool
	take := func(e state.Event) {
		if last != nil && w.is(last) {
			return
		}
		if last = &e.State; w.is(last) {
			cancel(errHappened)
		}
	}
	well := func(err error) {
		if err == nil {
			answered.Store(true)
		}
	}
	watch := a.watching(d)
	watch.Trace = &leaderelection.Trace{
		StoreOp: func(o leaderelection.StoreOp) { well(o.Err) },
		Feed:    func(f leaderelection.FeedEvent) { well(f.Err) },
	}
	err = a.follow(ctx, watch, take)
	if last != nil && w.is(last) {
		return *last, nil
	}
	return state.State{}, w.verdict(err, answered.Load(), last)
}

// verdict is why a wait has ended without what was awaited: whether the store answered, and
// what was last seen, or nil.
func (w *awaited) verdict(err error, answered bool, last *state.State) error {
	switch s, interrupted := errors.AsType[*signalled](err); {
	case interrupted:
		return &exit{128 + int(s.signal), nil}
	case !errors.Is(err, errTimeout):
		return err
	case last == nil && !answered:
		return fmt.Errorf("the store did not answer: %w", err)
	case last != nil && last.State == state.Led:
		return &exit{exitUnled, fmt.Errorf("%[2]s led, with token %[3]d, when --timeout %[1]v was over", w.timeout, state.Name(last.LeaderID), last.Token)}
	}
	return &exit{exitUnled, fmt.Errorf("nobody led within --timeout %v", w.timeout)}
}
