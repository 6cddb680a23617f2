package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
	"github.com/c8e606e4/leaderelection/shard"
)

// asked is a group of which an operator asks something.
type asked struct {
	*app
	url     string
	timeout time.Duration
	group   *store.Group
	op      shard.Operator
}

// operator makes c a command by which an operator asks a group for something about the
// names that follow its URL.
func (a *app) operator(c *cobra.Command, do func(ctx context.Context, q *asked, args []string) error, names ...string) *cobra.Command {
	var timeout time.Duration
	c.Use += " " + strings.Join(append([]string{"[URL]"}, names...), " ")
	c.Args = func(c *cobra.Command, args []string) error {
		if len(names) == 0 {
			return cobra.MaximumNArgs(1)(c, args)
		}
		if n := len(args) - len(names); n < 0 || n > 1 {
			return fmt.Errorf("want %s, and the store's URL before it unless that is set otherwise; got %q", strings.Join(names, " and "), args)
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		n := len(args) - len(names)
		url, err := a.url(args[:n])
		switch {
		case err != nil && n == 0 && len(names) > 0:
			return usage("%w; it stands before %s", err, strings.Join(names, " and "))
		case err != nil:
			return err
		}
		a.begun(exitError)
		ctx, cancel := context.WithCancelCause(c.Context())
		defer cancel(nil)
		defer a.signals(cancel, nil)()
		limit := time.AfterFunc(timeout, func() { cancel(errTimeout) })
		defer limit.Stop()
		g, err := a.openGroupOnce(ctx, store.Existing(url), timeout)
		if err != nil {
			return late(ctx, err)
		}
		defer g.Close()
		q := &asked{app: a, url: url, timeout: timeout, group: g, op: shard.Operator{Store: g.Store}}
		err = advised(url, do(ctx, q, args[n:]))
		if _, said := errors.AsType[*exit](err); said || err == nil {
			return err
		}
		return late(ctx, err)
	}
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for it to happen")
	return c
}

// advised is err with where the group is, and what to do, if that is known.
func advised(url string, err error) error {
	switch _, damaged := errors.AsType[*leaderelection.DamagedRecordError](err); {
	case errors.Is(err, errMembers):
		return err
	case errors.Is(err, shard.ErrNoShard):
		return fmt.Errorf("%w; nothing was asked for: leaderelect shards status --each lists the shards", err)
	case errors.Is(err, shard.ErrNoGroup):
		return fmt.Errorf("%w (%s)", err, redact.URL(url))
	case damaged, errors.Is(err, shard.ErrForeign):
		at, wrong := store.InGroup(url, "assignment")
		if wrong != nil {
			at = url
		}
		return fmt.Errorf("%w. It is left as it is, at %s: %s", err, redact.URL(at), shards.Foreign)
	}
	return err
}

// look reads what there is of the group; none is an error.
func (q *asked) look(ctx context.Context) (*shards.State, error) {
	s, err := lookOnce(ctx, q.observer(q.group))
	if err == nil && s.Version == 0 {
		err = shard.ErrNoGroup
	}
	return &s, err
}

// unless refuses what cannot happen, for a reason why, unless it is forced.
func unless(force bool, why string) error {
	if force || why == "" {
		return nil
	}
	return fmt.Errorf("%s; nothing was asked for (--force asks all the same)", why)
}

const aboutForce = "ask even if it cannot happen now: the request stays until it can"

func (q *asked) say(format string, args ...any) error {
	_, err := fmt.Fprintf(q.out, format+"\n", args...)
	return err
}

func (a *app) shardsMoveCommand() *cobra.Command {
	var force bool
	c := a.operator(&cobra.Command{
		Use:   "move",
		Short: "Pin a shard to a member",
	}, func(ctx context.Context, q *asked, args []string) error { return q.move(ctx, args[0], args[1], force) }, "SHARD", "MEMBER")
	c.Flags().BoolVar(&force, "force", false, aboutForce)
	return c
}

func (q *asked) move(ctx context.Context, name, to string, force bool) error {
	s, err := q.look(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Assigned, func(one shards.Shard) bool { return one.Name == name }) {
		return fmt.Errorf("%w %q", shard.ErrNoShard, name)
	}
	if err := unless(force, s.CannotMove(name, to)); err != nil {
		return err
	}
	if err := q.op.Pin(ctx, name, to); err != nil {
		return err
	}
	return q.until(ctx, func(as *shard.Assignment) (done bool, now string) {
		o, _ := as.Owner(name)
		switch {
		case o.Member == to && !o.Moving:
			return true, fmt.Sprintf("%s owns shard %s, with token %d", state.Name(to), state.Name(name), o.Token)
		case o.Member == "":
			return false, fmt.Sprintf("nobody owns shard %s", state.Name(name))
		}
		return false, fmt.Sprintf("%s still owns shard %s", state.Name(o.Member), state.Name(name))
	}, func(s *shards.State) string { return s.NotMoved(name, to) })
}

func (a *app) shardsUnpinCommand() *cobra.Command {
	return a.operator(&cobra.Command{
		Use:   "unpin",
		Short: "Remove the pin of a shard",
	}, func(ctx context.Context, q *asked, args []string) error {
		if err := q.op.Unpin(ctx, args[0]); err != nil {
			return err
		}
		return q.say("shard %s is pinned to nobody", state.Name(args[0]))
	}, "SHARD")
}

func (a *app) shardsDrainCommand() *cobra.Command {
	var force, wait bool
	c := a.operator(&cobra.Command{
		Use:   "drain",
		Short: "Move a member's shards to the others",
	}, func(ctx context.Context, q *asked, args []string) error { return q.drain(ctx, args[0], force, wait) }, "MEMBER")
	c.Flags().BoolVar(&force, "force", false, aboutForce)
	c.Flags().BoolVar(&wait, "wait", true, "wait until the member is empty")
	return c
}

func (q *asked) drain(ctx context.Context, id string, force, wait bool) error {
	s, err := q.look(ctx)
	if err != nil {
		return err
	}
	if err := unless(force, s.CannotDrain(id)); err != nil {
		return err
	}
	if err := q.op.Drain(ctx, id); err != nil {
		return err
	}
	if !wait {
		return q.say("%s is to be emptied", state.Name(id))
	}
	return q.until(ctx, func(as *shard.Assignment) (done bool, now string) {
		left := held(as, id)
		return left == 0, fmt.Sprintf("%s owns %d shards that are not pinned to it", state.Name(id), left)
	}, func(s *shards.State) string { return s.NotDrained(id) })
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
	return a.operator(&cobra.Command{
		Use:   "undrain",
		Short: "Give a drained member its share again",
	}, func(ctx context.Context, q *asked, args []string) error {
		id := args[0]
		as, err := q.observer(q.group).Read(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(as.Drained(), id) && !slices.ContainsFunc(as.Members(), func(o shard.Owner) bool { return o.Member == id }) {
			return fmt.Errorf("the group has no member %s, and none of that name is drained: leaderelect shards status lists them", state.Name(id))
		}
		if err := q.op.Undrain(ctx, id); err != nil {
			return err
		}
		return q.say("%s gets its share", state.Name(id))
	}, "MEMBER")
}

func (a *app) shardsResetCommand() *cobra.Command {
	var after uint64
	var force bool
	c := a.operator(&cobra.Command{
		Use:   "reset",
		Short: "Replace an assignment that the group cannot continue from",
	}, func(ctx context.Context, q *asked, _ []string) error {
		if after == 0 {
			return usage("--after is missing, or 0: name the greatest token of any shard that any fence, log or backup has seen")
		}
		if err := q.op.Reset(ctx, leaderelection.ElectionNumber(after), force); err != nil {
			return err
		}
		return q.say("nobody owns any shard, and each one's next token is greater than %d", after)
	})
	c.Flags().Uint64Var(&after, "after", 0, "the greatest token of any shard that any fence, log or backup has seen")
	c.Flags().BoolVar(&force, "force", false, "write even if members may run: only when all have been stopped for a term")
	return c
}

// until waits until what was asked for has happened, and says so, or where things are when
// the time is over, and why.
func (q *asked) until(ctx context.Context, is func(*shard.Assignment) (done bool, now string), why func(*shards.State) string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	now := "the assignment could not be read"
	w := q.observer(q.group)
	w.PollInterval = cmp.Or(w.PollInterval, 500*time.Millisecond)
	err := w.Watch(ctx, func(_ context.Context, as *shard.Assignment) {
		var done bool
		if done, now = is(as); done {
			cancel(errHappened)
		}
	})
	switch {
	case errors.Is(err, errHappened):
		return q.say("%s", now)
	case !errors.Is(err, errTimeout):
		return err
	}
	again, cancelAgain := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancelAgain()
	if s, err := q.look(again); err == nil {
		now += "; " + why(s)
	}
	return &exit{exitError, fmt.Errorf("asked, but not within %v: %s", q.timeout, now)}
}
