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
		Short: "Put a vacant record in the place of one that nobody can go on from",
		Long: `Write a vacant record, whose next election is N+1, over one that the election cannot go on
from: a damaged one, one whose term ends in 1,000 hours, or one that was deleted, or restored
from a backup. N must be the greatest election number that any fence, log or backup has seen:
fences refuse what is smaller. It may be greater.

Stop all candidates first, and wait for a term: then whoever led does not act any more.

Without --force reset refuses while a leader's term runs, or a hold or a reservation, and
if that cannot be told, as of a damaged record. A record that is missing it writes at once.

Exit codes: 0 the record is written; 1 it is not; 2 usage.`,
		Example: `  leaderelect reset --after 1041 --force s3://bucket/app`,
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			url, _, err := a.url(args)
			switch {
			case err != nil:
				return err
			case timeout <= 0:
				return usage("--timeout is %v, must be positive", timeout)
			case !c.Flags().Changed("after"):
				return usage("--after is missing: the greatest election number that any fence, log or backup has seen")
			}
			return a.reset(c.Context(), url, after, force, timeout)
		},
	}
	c.Flags().Uint64Var(&after, "after", 0, "the greatest election number that any fence, log or backup has seen: the next is one more")
	c.Flags().BoolVar(&force, "force", false, "although a term may be running: only when all candidates are stopped, and have been for a term")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to try")
	return c
}

func (a *app) reset(ctx context.Context, url string, after uint64, force bool, timeout time.Duration) error {
	a.begun(exitError)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, nil)()
	late := time.AfterFunc(timeout, func() { cancel(errTimeout) })
	defer late.Stop()
	d, err := store.Open(ctx, url, timeout)
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
	if _, err := fmt.Fprintf(a.out, "the record is vacant, and the next election is %d\n", after+1); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

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
