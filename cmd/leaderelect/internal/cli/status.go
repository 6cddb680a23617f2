package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

// exitUnled is what status exits with if nobody leads, or not who should.
const exitUnled = 1

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	var checkID string
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show who leads",
		Long: `Read the record once, and print who leads, since about when, with which fencing token, at
which addresses, and how much of the term is left. Use it to look, and in probes. For work
that only the leader may do, use the leader's own view and fencing: a moment later the
answer may be wrong.

The start is estimated from the number of extensions, two in each term less the skew.
Give --extend-every if the leader extends more often, as run does: see leaderelect plan.

In an election that is held --unsynchronized, one look does not tell whether the term
still runs. status then looks on until the leader extends its lease, which takes half a
term, or until the term must have run out, which takes a whole one.

Exit codes: 0 somebody leads; 1 nobody does, or with --check-id another candidate; 2 error.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			url, _, err := a.url(args)
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usage("--timeout is %v, must be positive", timeout)
			}
			a.begun(exitUsage) // errors are 2 here, too
			l := look{url: url, timeout: timeout, firm: c.Flags().Changed("timeout"), poll: a.common.poll, skew: a.common.skew, every: a.common.extendEvery}
			return a.status(c.Context(), &l, asJSON, checkID)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().StringVar(&checkID, "check-id", "", "exit with 0 only if this candidate leads, for probes")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store; if given, also the limit of the whole look")
	return c
}

func (a *app) status(ctx context.Context, l *look, asJSON bool, checkID string) error {
	s, err := l.look(ctx)
	if err != nil {
		return err
	}
	switch err := a.answer(asJSON, s, s.Text); {
	case err != nil:
		return err
	case checkID != "" && s.LeaderID != checkID:
		return &exit{exitUnled, nil}
	case s.State == state.Held:
		return fmt.Errorf("within --timeout %v it could not be told whether the term still runs; that takes %v at most", l.timeout, l.took)
	case s.State != state.Led:
		return &exit{exitUnled, nil}
	}
	return nil
}

// answer prints what was asked for, as JSON or as text.
func (a *app) answer(asJSON bool, v any, text func() string) (err error) {
	if asJSON {
		err = json.NewEncoder(a.out).Encode(v)
	} else {
		_, err = fmt.Fprint(a.out, text())
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// look is a look at an election.
type look struct {
	url        string
	timeout    time.Duration // for the store to answer in
	firm       bool          // it is for everything
	poll, skew time.Duration
	every      time.Duration // how often leaders extend their lease

	took time.Duration // what a verdict takes at most
}

// look says what one look tells, or where that does not tell whether anybody leads,
// more of them.
func (l *look) look(ctx context.Context) (state.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(l.timeout, func() { cancel(fmt.Errorf("no answer within --timeout %v", l.timeout)) })
	defer limit.Stop()
	d, err := store.Open(ctx, l.url, l.timeout)
	if err != nil {
		return state.State{}, late(ctx, err)
	}
	defer store.Close(d)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		return state.State{}, late(ctx, err)
	}
	s := state.OfPaced(e, time.Now(), l.skew, l.every)
	if s.State != state.Held {
		s.Place = placeOf(d)
		return s, nil
	}
	poll := l.poll
	if poll == 0 {
		poll = max(e.TermLength/10, 50*time.Millisecond)
	}
	l.took = state.Unseen(e, l.skew) + poll
	if !l.firm {
		limit.Reset(l.took + l.timeout)
	}
	s, err = l.lookOn(ctx, d, poll)
	s.Place = placeOf(d)
	return s, err
}

// late says why ctx has ended, if that is why err is.
func late(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

var errTold = errors.New("it is told")

// lookOn looks until it is known whether anybody leads, or until ctx ends.
func (l *look) lookOn(ctx context.Context, d leaderelection.RaceDecider, poll time.Duration) (state.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := state.Follower{Every: l.every}
	var s state.State
	take := func(e state.Event) {
		if s = e.State; s.State != state.Held {
			cancel(errTold)
		}
	}
	err := leaderelection.WatchConfig{Decider: d, MaxClockSkew: l.skew, ClockPolicy: policyOf(l.skew), PollInterval: poll,
		Lapsed: func(_ context.Context, e leaderelection.RaceEntry) { take(f.Lapsed(&e, time.Now(), l.skew)) },
	}.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { take(f.Changed(&e, time.Now(), l.skew)) })
	if s.State != "" {
		err = nil // the limit has passed: what is known is told
	}
	return s, err
}
