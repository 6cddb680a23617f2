package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
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
		Args:  cobra.MaximumNArgs(1),
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

func (a *app) watchCommand() *cobra.Command {
	var asJSON, extensions bool
	c := &cobra.Command{
		Use:   "watch [URL]",
		Short: "Print each new leadership, vacancy and lapse",
		Args:  cobra.MaximumNArgs(1),
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
		Args:  cobra.MaximumNArgs(1),
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
