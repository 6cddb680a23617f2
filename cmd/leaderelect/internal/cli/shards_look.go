package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/shard"
)

func (a *app) shardsStatusCommand() *cobra.Command {
	var asJSON, each bool
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show who owns which shard",
		Long: `Read a group's records once. Print its members, how many shards each owns, and the shards
that nobody owns, that are moving, or that are pinned. With --each (and with --json) print
every shard, with its owner and its token.

Exit codes: 0 every shard has an owner that is alive; 1 some have none, or a member's
record cannot be read, or there is no group yet; 2 error.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			a.begun(exitUsage) // errors are 2 here, too
			s, err := a.lookAt(c.Context(), url, timeout)
			if err != nil {
				return err
			}
			switch err := a.answer(asJSON, s, func() string { return s.Text(each) }); {
			case err != nil:
				return err
			case !s.Calm():
				return &exit{exitUnled, nil}
			}
			return nil
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&each, "each", false, "list all shards")
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	return c
}

// lookAt says what one look at a group tells.
func (a *app) lookAt(ctx context.Context, url string, timeout time.Duration) (shards.State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within --timeout %v", timeout))
	defer cancel()
	g, err := a.openGroupOnce(ctx, store.Existing(url), timeout)
	if err != nil {
		return shards.State{}, late(ctx, err)
	}
	defer g.Close()
	s, err := lookOnce(ctx, a.observer(g))
	if err != nil {
		return s, late(ctx, advised(url, err))
	}
	return s, nil
}

// errMembers is what went wrong after the assignment could be read.
var errMembers = errors.New("reading the members")

// lookOnce reads assignment, seats and coordinator.
func lookOnce(ctx context.Context, w shard.WatchConfig) (shards.State, error) {
	as, err := w.Read(ctx)
	if err != nil && !errors.Is(err, shard.ErrNoGroup) {
		return shards.State{}, err
	}
	seats, err := w.Seats(ctx, as)
	if err != nil {
		return shards.State{}, fmt.Errorf("%w: %w", errMembers, err)
	}
	if seats == nil {
		seats = []shard.Seat{} // they were looked at
	}
	s := shards.Of(as, seats, time.Now())
	s.Coordinator, err = w.Coordinator(ctx)
	return s, err
}

func (a *app) shardsWatchCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch [URL]",
		Short: "Print each change of owner",
		Long: `Follow a group without joining it, and print a line for each shard that is asked to move,
gets an owner, has none or is removed, and for each member that joins or leaves. The first
line is the present state. watch ends when it is interrupted, or when its reader is gone.

Exit codes: 0 interrupted, or its reader is gone; 1 error; 2 usage.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.onURL(func(c *cobra.Command, url string) error {
			return a.printEvents(c.Context(), asJSON, func(ctx context.Context, tell printer) error { return a.watchShards(ctx, url, tell) })
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each event as a line of JSON")
	return c
}

// watchShards tells of each event of a group until ctx ends.
func (a *app) watchShards(ctx context.Context, url string, tell printer) error {
	g, err := a.openGroup(ctx, store.Existing(url))
	if err != nil {
		return err
	}
	defer g.Close()
	w := a.observer(g)
	if _, err := w.Read(ctx); errors.Is(err, shard.ErrNoGroup) {
		a.logger().Info("there is no group yet; waiting for its first member", "group", redact.URL(url))
	}
	var f shards.Follower
	return w.Watch(ctx, func(_ context.Context, as *shard.Assignment) {
		for _, e := range f.Changed(as, time.Now()) {
			if !tell(&e) {
				return
			}
		}
	})
}
