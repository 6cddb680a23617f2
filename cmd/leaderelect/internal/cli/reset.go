package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/shard"
)

func (a *app) resetCommand() *cobra.Command {
	var after uint64
	var force bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "reset [URL] --after N",
		Short: "Replace a record that the election cannot continue from",
		Long: `Write a vacant record, whose next fencing token is N+1, over one that the election cannot
continue from: a record that is damaged, deleted or restored from a backup, or whose term
ends in 1,000 hours. N must not be less than the greatest fencing token that any fence,
log or backup has seen, because fences refuse smaller tokens. It may be greater.

First stop all candidates, and wait for a term: then the last leader no longer acts.

Without --force, reset refuses while a term, a hold or a reservation runs, and for a term
after that, since clocks differ. It also refuses if it cannot know, as for a damaged or
emptied record. It writes a missing record without --force.

Exit codes: 0 the record is written; 1 it is not; 2 usage.`,
		Example: `  leaderelect reset --after 1795430400 --force s3://bucket/app`,
		Args:    cobra.MaximumNArgs(1),
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
