package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/shard"
)

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
