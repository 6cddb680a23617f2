package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/shard"
)

type shardsSidecarFlags struct {
	memberFlags
	served
}

func (a *app) shardsSidecarCommand() *cobra.Command {
	var f shardsSidecarFlags
	c := &cobra.Command{
		Use: "sidecar [flags] [URL] [--shards N -- COMMAND [ARGUMENT...]]",

		DisableFlagsInUseLine: true, // cobra writes them last: there they belong to COMMAND

		Short: "Follow or join a group, and serve over HTTP who owns which shard",
		Long: `Follow a group, and serve over HTTP who owns which shard. With a COMMAND also be a member
that runs it for each shard, as leaderelect shards run does.

    GET  /shards      members and shards, as JSON. With ?wait=30s&after=VERSION
                      the answer waits for a later assignment, or for the
                      time to be over
    GET  /shards/NAME who owns a shard, and at which address. With
                      ?wait=30s&after=TOKEN the answer waits for an owner
                      with a greater token
    GET  /events      server-sent events: state (once), owned, moving, unowned,
                      removed, joined, left
    GET  /self        what this process owns, with tokens and the time left
    GET  /owner       200 only while this process owns a shard
    GET  /livez       200 while this process does its work
    POST /move?shard=NAME&to=MEMBER, /unpin?shard=NAME
    POST /drain?member=MEMBER, /undrain?member=MEMBER
    GET  /            a page for people

--secret-file, --read-only and --allow-host are as for leaderelect sidecar.`,
		Example: `  leaderelect shards sidecar --listen :4040 s3://bucket/orders
  curl 'http://127.0.0.1:4040/shards/7?wait=30s&after=3'`,
		Args: commandAfterDash(false),
		RunE: a.onURLAndCommand(func(c *cobra.Command, url string, command []string) error {
			return a.shardsSidecar(c.Context(), &f, url, command)
		}),
	}
	f.memberFlags.flags(a, c)
	f.served.flags(c)
	return c
}

func (a *app) shardsSidecar(ctx context.Context, f *shardsSidecarFlags, url string, command []string) error {
	if len(command) == 0 && f.given() {
		return usage("--shards and --names are for a member, which runs a COMMAND: write it after --")
	}
	if _, err := store.InGroup(url, firstRecord); err != nil {
		return err
	}
	s := &shardsServed{a: a, f: f, url: url, hub: sidecar.NewShardHub(), stopped: make(chan struct{})}
	var err error
	if s.secret, err = f.served.check(a); err != nil {
		return err
	}
	if len(command) > 0 {
		if s.member, err = a.newMember(&f.memberFlags, url, command); err != nil {
			return err
		}
	}
	a.begun(exitError)
	return s.run(ctx)
}

// shardsServed is a running sidecar of a group.
type shardsServed struct {
	a       *app
	f       *shardsSidecarFlags
	url     string
	secret  func() (string, error)
	member  *member // nil: an observer
	hub     *sidecar.ShardHub
	joined  atomic.Pointer[shard.Member]
	group   atomic.Pointer[store.Group]
	stopped chan struct{}
}

func (s *shardsServed) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var c commands
	if s.member != nil {
		c = s.member.commands
	}
	defer s.a.signals(cancel, c)()
	listener, err := net.Listen("tcp", s.f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer s.serve(listener)()
	if s.member == nil {
		g, err := s.a.openGroup(ctx, store.Existing(s.url))
		if err != nil {
			return ended(err)
		}
		defer g.Close()
		s.group.Store(g)
		return ended(s.a.observer(g).Watch(ctx, func(_ context.Context, a *shard.Assignment) { s.hub.News(a) }))
	}
	s.member.cfg.ShardTrace = &shard.Trace{Assignment: s.hub.News}
	s.member.begun = func(g *store.Group, m *shard.Member) {
		s.group.Store(g)
		s.joined.Store(m)
	}
	return s.member.outcome(s.member.run(ctx, cancel))
}

// ask lets an operator ask the group, once it is open.
func (s *shardsServed) ask(do func(shard.Operator) error) error {
	g := s.group.Load()
	if g == nil {
		return errNotOpen
	}
	return do(shard.Operator{Store: g.Store})
}

// serve serves HTTP until the function that it returns is called.
func (s *shardsServed) serve(l net.Listener) (stop func()) {
	return s.f.serve(l, s.a.logger(), s.stopped, func(c sidecar.Config) http.Handler {
		c.Secret, c.Fit = s.secret, s.a.fit
		if s.member != nil {
			c.ID = s.member.cfg.MemberID
		}
		return sidecar.ShardsHandler(sidecar.ShardsConfig{
			Config: c, Group: s.hub, Member: s.joined.Load,
			Move: func(ctx context.Context, name, to string) error {
				return s.ask(func(o shard.Operator) error { return o.Pin(ctx, name, to) })
			},
			Unpin:   s.asks(shard.Operator.Unpin),
			Drain:   s.asks(shard.Operator.Drain),
			Undrain: s.asks(shard.Operator.Undrain),
		})
	})
}

// asks is ask for what an operator asks about one name.
func (s *shardsServed) asks(do func(shard.Operator, context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		return s.ask(func(o shard.Operator) error { return do(o, ctx, name) })
	}
}
