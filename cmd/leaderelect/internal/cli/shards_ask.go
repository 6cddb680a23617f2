package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/shard"
)

const aboutTimeout = "how long to wait until it has happened"

func (a *app) shardsMoveCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "move [URL] SHARD MEMBER",
		Short: "Give a shard to a member, whatever the balance says",
		Long: `Pin a shard to the member of that name (its --id), and wait until that one owns it. The
pin stays: the shard comes back to the member whenever there is one of that name that has
room, until leaderelect shards unpin.

Exit codes: 0 MEMBER owns it; 1 it does not within --timeout (the pin stays), or nothing
was asked for: there is no such shard, or no such member; 2 usage.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			n := len(args) - 2
			url, _, err := a.url(args[:n])
			if err != nil {
				return err
			}
			name, to := args[n], args[n+1]
			return a.asking(c.Context(), url, timeout, func(ctx context.Context, g *store.Group) error {
				if err := a.isMember(ctx, g, to); err != nil {
					return err
				}
				if err := (shard.Operator{Store: g.Store}).Pin(ctx, name, to); err != nil {
					return err
				}
				return a.until(ctx, g, timeout, func(as *shard.Assignment) (done bool, now string) {
					o, _ := as.Owner(name)
					switch {
					case o.Member == to && !o.Moving:
						return true, fmt.Sprintf("%s owns shard %s, with token %d", state.Name(to), state.Name(name), o.Token)
					case o.Member == "":
						return false, fmt.Sprintf("nobody owns shard %s", state.Name(name))
					}
					return false, fmt.Sprintf("%s still owns shard %s", state.Name(o.Member), state.Name(name))
				})
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, aboutTimeout)
	return c
}

// isMember refuses a name that no member has: a pin to it would do nothing.
func (a *app) isMember(ctx context.Context, g *store.Group, id string) error {
	as, err := a.observer(g).Read(ctx)
	if err != nil {
		return late(ctx, err)
	}
	for _, m := range as.Members() {
		if m.Member == id {
			return nil
		}
	}
	return fmt.Errorf("the group has no member %s; nothing was asked for: leaderelect shards status lists them", state.Name(id))
}

func (a *app) shardsUnpinCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "unpin [URL] SHARD",
		Short: "Leave a shard that was moved to the balance again",
		Long: `Take back what leaderelect shards move has asked for: who owns the shard is for the balance
to say again. It does not move unless that calls for it.

Exit codes: 0 it is on record; 1 error; 2 usage.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			n := len(args) - 1
			url, _, err := a.url(args[:n])
			if err != nil {
				return err
			}
			return a.asking(c.Context(), url, timeout, func(ctx context.Context, g *store.Group) error {
				return (shard.Operator{Store: g.Store}).Unpin(ctx, args[n])
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the store")
	return c
}

func (a *app) shardsDrainCommand() *cobra.Command {
	var timeout time.Duration
	var wait bool
	c := &cobra.Command{
		Use:   "drain [URL] MEMBER",
		Short: "Have a member's shards moved to the others",
		Long: `Have the member of that name emptied, and wait until it owns nothing but what is pinned to
it. It stays in the group, and gets no shard until leaderelect shards undrain, also when it
is started again under its name. What nobody else has room for it keeps.

Exit codes: 0 it is empty; 1 it is not within --timeout (the request stays), or there is no
group; 2 usage.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			n := len(args) - 1
			url, _, err := a.url(args[:n])
			if err != nil {
				return err
			}
			id := args[n]
			return a.asking(c.Context(), url, timeout, func(ctx context.Context, g *store.Group) error {
				if err := (shard.Operator{Store: g.Store}).Cordon(ctx, id); err != nil || !wait {
					return err
				}
				return a.until(ctx, g, timeout, func(as *shard.Assignment) (done bool, now string) {
					left := held(as, id)
					return left == 0, fmt.Sprintf("%s owns %d shards that are not pinned to it", state.Name(id), left)
				})
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, aboutTimeout)
	c.Flags().BoolVar(&wait, "wait", true, "wait until the member is empty")
	return c
}

// held is how many shards a member has that are not pinned to it.
func held(as *shard.Assignment, id string) (n int) {
	pins := as.Pins()
	for i := range as.Len() {
		if name, o := as.Shard(i); o.Member == id && pins[name] != id {
			n++
		}
	}
	return n
}

func (a *app) shardsUndrainCommand() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "undrain [URL] MEMBER",
		Short: "Let a drained member have its share again",
		Long: `Take back what leaderelect shards drain has asked for: the member gets its share again.

Exit codes: 0 it is on record; 1 error; 2 usage.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			n := len(args) - 1
			url, _, err := a.url(args[:n])
			if err != nil {
				return err
			}
			return a.asking(c.Context(), url, timeout, func(ctx context.Context, g *store.Group) error {
				return (shard.Operator{Store: g.Store}).Uncordon(ctx, args[n])
			})
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the store")
	return c
}

// until waits until what was asked for has happened, and says so, or where things are when
// the time is over.
func (a *app) until(ctx context.Context, g *store.Group, timeout time.Duration, is func(*shard.Assignment) (done bool, now string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := "the assignment could not be read"
	w := a.observer(g)
	if w.PollInterval == 0 {
		w.PollInterval = 500 * time.Millisecond
	}
	err := w.Watch(ctx, func(_ context.Context, as *shard.Assignment) {
		done := false
		if done, now = is(as); done {
			cancel(errHappened)
		}
	})
	switch {
	case errors.Is(err, errHappened):
		_, err = fmt.Fprintln(a.out, now)
		return err
	case errors.Is(err, errTimeout):
		return fmt.Errorf("asked, but not within %v: %s", timeout, now)
	}
	return err
}
