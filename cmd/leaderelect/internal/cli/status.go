package cli

import (
	"cmp"
	"context"
	"encoding/json"
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

In an election that is held with --clocks unsynchronized, one look does not tell whether the term
still runs. status then looks on until the leader extends its lease, which takes half a
term, or until the term must have run out, which takes a whole one. So it does if the term
ends later than a right clock can have written; then two terms, of 15s at least, tell that
nobody leads.

Exit codes: 0 somebody leads; 1 nobody does, or with --check-id another candidate; 2 error.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			a.begun(exitUsage) // errors are 2 here, too
			l := look{app: a, url: url, timeout: timeout, firm: c.Flags().Changed("timeout")}
			return a.status(c.Context(), &l, asJSON, checkID)
		}),
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
	case s.State == state.Unknown:
		return fmt.Errorf("within --timeout %v it could not be told whether the term still runs; that takes %v at most", l.timeout, l.took)
	case s.State != state.Led:
		return &exit{exitUnled, nil}
	}
	return nil
}

// answer prints v as a line of JSON, or text.
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
	*app
	url     string
	timeout time.Duration // for the store to answer in
	firm    bool          // it is for everything
	took    time.Duration // what a verdict takes at most
}

// look says what one look tells, or where that does not tell whether anybody leads,
// more of them.
func (l *look) look(ctx context.Context) (state.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(l.timeout, func() { cancel(fmt.Errorf("no answer within --timeout %v", l.timeout)) })
	defer limit.Stop()
	d, err := store.Open(ctx, store.Existing(l.url), l.timeout)
	if err != nil {
		return state.State{}, late(ctx, err)
	}
	defer store.Close(d)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		return state.State{}, late(ctx, err)
	}
	s := state.Of(e, time.Now(), l.common.skew, l.common.extendEvery)
	if s.State != state.Unknown {
		s.Place = placeOf(d)
		return s, nil
	}
	poll := cmp.Or(l.common.poll, max(e.TermLength/10, 50*time.Millisecond))
	l.took = state.Unseen(e, l.common.skew) + poll
	if !e.Unsynchronized {
		// A clock is wrong, and Lapsed comes when the record has not changed for two of the longest term
		// that an observer takes candidates to have.
		term := max(e.TermLength, leaderelection.DefaultTermLength)
		l.took = max(2*term, term+3*l.common.skew) + poll
	}
	if !l.firm {
		limit.Reset(l.took + l.timeout)
	}
	s, err = l.lookOn(ctx, d, poll)
	s.Place = placeOf(d)
	return s, err
}

// lookOn looks until it is known whether anybody leads, or until ctx ends.
func (l *look) lookOn(ctx context.Context, d leaderelection.RaceDecider, poll time.Duration) (state.State, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := l.watching(d)
	watch.PollInterval = poll
	var s state.State
	err := l.follow(ctx, watch, func(e state.Event) {
		if s = e.State; s.State != state.Unknown {
			cancel(errHappened)
		}
	})
	if s.State != "" {
		err = nil // the limit has passed: what is known is told
	}
	return s, err
}
