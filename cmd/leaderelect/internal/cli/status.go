package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/shard"
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

func (a *app) transferCommand() *cobra.Command {
	var timeout time.Duration
	var force bool
	c := &cobra.Command{
		Use:   "transfer [URL] ID",
		Short: "Ask the leader to hand over to another candidate",
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			id := args[len(args)-1]
			switch {
			case strings.Contains(id, "://") && len(args) > 1:
				return usage("%s is a URL, and ID comes after it: leaderelect transfer URL ID", redact.URL(id))
			case strings.Contains(id, "://"):
				return usage("ID is missing, the name of the candidate that is to lead: leaderelect transfer URL ID")
			}
			url, err := a.url(args[:len(args)-1])
			if err != nil {
				return err
			}
			if id == "" || id == leaderelection.AnySuccessor {
				return usage("ID is %q, want a candidate's; for anybody there is stepdown", id)
			}
			return a.handOver(c.Context(), url, id, timeout, force)
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the hand-over")
	c.Flags().BoolVar(&force, "force", false, "ask the leader without asking you whether ID is running")
	return c
}

func (a *app) stepdownCommand() *cobra.Command {
	var timeout time.Duration
	var force bool
	c := &cobra.Command{
		Use:   "stepdown [URL]",
		Short: "Ask the leader to step down",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			return a.handOver(c.Context(), url, leaderelection.AnySuccessor, timeout, force)
		}),
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the release")
	c.Flags().BoolVar(&force, "force", false, "ask the leader even if it runs a job with a --hold")
	return c
}

// handOver asks, waits until it has happened, and says what has.
func (a *app) handOver(ctx context.Context, url, successor string, timeout time.Duration, force bool) error {
	a.begun(exitError)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	late := time.AfterFunc(timeout, func() { cancel(errTimeout) })
	defer func() { late.Stop() }()
	d, err := store.Open(ctx, store.Existing(url), timeout)
	if err != nil {
		return err
	}
	defer store.Close(d)
	first, err := d.ReadCurrent(ctx)
	if err != nil {
		return err
	}
	if !force && successor != leaderelection.AnySuccessor {
		late.Stop() // people take their time
		if err := a.confirm(ctx, first, successor); err != nil {
			return err
		}
		late.Reset(timeout)
	}
	if successor == leaderelection.AnySuccessor {
		err = leaderelection.StepDown(ctx, d, force)
	} else {
		err = leaderelection.Transfer(ctx, d, successor)
	}
	if err != nil {
		return err
	}
	w := &handOverWait{first: first, successor: successor, stop: cancel}
	return a.awaitHandOver(ctx, d, w, timeout)
}

// heldUntil is until when a record keeps others out.
func heldUntil(e *leaderelection.RaceEntry) time.Time {
	return e.TermExpiry.Add(min(e.Hold, leaderelection.MaxTermLength))
}

// said is a time as messages have it.
func said(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// confirm asks whether there is a candidate of that name. It need not ask of the leader,
// nor if there is nobody who could be asked to hand over: that is refused anyway.
func (a *app) confirm(ctx context.Context, e *leaderelection.RaceEntry, successor string) error {
	if e.ElectionNumber == leaderelection.NoElections || e.LeaderID == successor {
		return nil
	}
	doubt := fmt.Sprintf("the record does not show whether a candidate %s is running; if none is, nobody leads for up to %v", state.Name(successor), e.TermLength)
	file, isFile := a.in.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return fmt.Errorf("the leader was not asked: %s. If it is running, give --force", doubt)
	}
	fmt.Fprintf(a.log(), "leaderelect: %s.\nIs it running? Hand over to it (yes/no)? ", doubt)
	typed := make(chan string, 1)
	go func() { // which a signal cannot interrupt
		answer, _ := bufio.NewReader(a.in).ReadString('\n')
		typed <- answer
	}()
	select {
	case answer := <-typed:
		if strings.TrimSpace(strings.ToLower(answer)) == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("the leader was not asked")
}

func (a *app) awaitHandOver(ctx context.Context, d leaderelection.RaceDecider, w *handOverWait, timeout time.Duration) error {
	watch := a.watching(d)
	watch.PollInterval = cmp.Or(watch.PollInterval, 500*time.Millisecond)
	watch.Lapsed = func(context.Context, leaderelection.RaceEntry) { w.lapsed = true }
	err := watch.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { w.see(&e) })
	switch {
	case errors.Is(err, errHappened):
		fmt.Fprintln(a.out, w.said)
		return w.failure
	case errors.Is(err, errTimeout):
		return fmt.Errorf("asked, but not within %v: %s", timeout, w.standing())
	}
	return err
}

// handOverWait waits for what was asked for.
type handOverWait struct {
	first     *leaderelection.RaceEntry // the record before the request
	successor string
	stop      context.CancelCauseFunc

	last    *leaderelection.RaceEntry
	lapsed  bool
	said    string
	failure error
}

// see looks whether a record is what was asked for.
func (w *handOverWait) see(e *leaderelection.RaceEntry) {
	w.last, w.lapsed = e, false
	if w.said != "" {
		return
	}
	newLeadership := e.ElectionNumber > w.first.ElectionNumber && !e.Vacant()
	switch anybody := w.successor == leaderelection.AnySuccessor; {
	case anybody && newLeadership:
		w.said = fmt.Sprintf("%s has stepped down; %s leads, with token %d", state.Name(w.first.LeaderID), state.Name(e.LeaderID), e.ElectionNumber)
	case anybody && e.Vacant():
		w.said = fmt.Sprintf("%s has stepped down from the leadership with token %d; nobody leads yet", state.Name(w.first.LeaderID), e.ElectionNumber)
		if e.Hold > 0 {
			w.said += ", and nobody is elected before the end of the job's --hold: " + said(heldUntil(e))
		}
	case !anybody && !e.Vacant() && e.LeaderID == w.successor:
		w.said = fmt.Sprintf("%s leads, with token %d", state.Name(e.LeaderID), e.ElectionNumber)
	case newLeadership:
		w.said = fmt.Sprintf("%s leads, with token %d", state.Name(e.LeaderID), e.ElectionNumber)
		w.failure = &exit{exitError, fmt.Errorf("%s was not there in time: is a candidate of that name running?", w.successor)}
	default:
		return
	}
	w.stop(errHappened)
}

// standing is where things are when the time is over.
func (w *handOverWait) standing() string {
	switch e := w.last; {
	case e == nil:
		return "the record could not be read"
	case w.lapsed:
		return fmt.Sprintf("%s does not extend its term any more, and nobody else leads", state.Name(e.LeaderID))
	case e.Vacant() && e.Hold > 0:
		return fmt.Sprintf("the record is vacant, and held by the job's --hold until %s: nobody is elected before", said(heldUntil(e)))
	case e.Vacant():
		return fmt.Sprintf("the record is vacant, and %s has not taken it: is a candidate of that name running?", w.successor)
	default:
		return fmt.Sprintf("%s still leads, with token %d, and winds down or has not seen the request yet", state.Name(e.LeaderID), e.ElectionNumber)
	}
}

func (a *app) resetCommand() *cobra.Command {
	var after uint64
	var force bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "reset [URL] --after N",
		Short: "Replace a record that the election cannot continue from",
		Args:  cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			if !c.Flags().Changed("after") {
				return usage("--after is missing: the greatest fencing token that any fence, log or backup has seen")
			}
			return a.reset(c.Context(), url, after, force, timeout)
		}),
	}
	c.Flags().Uint64Var(&after, "after", 0, "the greatest fencing token that any fence, log or backup has seen; the next is one more")
	c.Flags().BoolVar(&force, "force", false, "write even if a term may be running: only when all candidates have been stopped for a term")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the store")
	return c
}

func (a *app) reset(ctx context.Context, url string, after uint64, force bool, timeout time.Duration) error {
	a.begun(exitError)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	late := time.AfterFunc(timeout, func() { cancel(errTimeout) })
	defer late.Stop()
	d, err := store.Open(ctx, store.Existing(url), timeout)
	if err != nil {
		return err
	}
	defer store.Close(d)
	if err := noAssignment(ctx, d); err != nil {
		return err
	}
	if err := leaderelection.Reset(ctx, d, leaderelection.ElectionNumber(after), force); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.out, "the record is vacant, and the next fencing token is %d\n", after+1); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if after < firstTokens {
		fmt.Fprintf(a.log(), "leaderelect: if nobody has reset this election before, its tokens were the seconds since 1970 or more, and a fence that has seen one refuses %d\n", after+1)
	}
	return nil
}

// firstTokens is less than the token that any election began with which was not reset: those are the
// seconds since 1970.
const firstTokens = 1_700_000_000

// noAssignment refuses the record that says who owns which shard: its tokens would be
// forgotten.
func noAssignment(ctx context.Context, d leaderelection.RaceDecider) error {
	only := func(string) (leaderelection.RaceDecider, error) { return d, nil }
	as, err := shard.WatchConfig{Store: only}.Read(ctx)
	if err != nil || as.Len() == 0 {
		return nil //nolint:nilerr // it is none, and Reset tells what else is wrong
	}
	return fmt.Errorf("it is the assignment of a group's %d shards, and an election's record would forget their tokens: leaderelect shards reset, with the group's URL, keeps them", as.Len())
}
