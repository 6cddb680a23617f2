package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/proc"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/sidecar"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/shard"
)

// memberFlags are those of a member of a group that runs a command for each shard.
type memberFlags struct {
	commandFlags
	divided
	weight, capacity, maxMoving int
	room                        int
	zone                        string
	prefer                      []string
}

func (m *memberFlags) flags(a *app, c *cobra.Command) {
	m.divided.flags(c)
	f := c.Flags()
	f.IntVar(&m.weight, "weight", 1, "this member's share of the shards, relative to the others' weights")
	f.IntVar(&m.capacity, "capacity", 0, "the most shards that this member takes; 0 is any number")
	f.StringVar(&m.zone, "zone", "", "the zone of this member: shards that prefer the zone go to it first")
	f.StringSliceVar(&m.prefer, "prefer", nil, "SHARD=ZONE: the best zone for a shard, if the balance allows it; \"@FILE\" reads one from each line of a file; may be repeated")
	f.IntVar(&m.maxMoving, "max-moving", shard.DefaultMaxMoving, "how many shards of one member may move at a time")
	f.IntVar(&m.room, "max-assignment", 0, "the largest assignment record in bytes, for a store that refuses larger ones; the same for all members (default 184320; leaderelect shards doctor tells you what fits)")
	m.commandFlags.flags(a, c, "how long a command may take to end when this member's session is being lost",
		"how long a command may take to end when its shard moves, or this member leaves; then it is killed",
		"when a command fails: restart it, and let another member try the shard after 5 quick failures in a row; or stepdown, which lets another member try it at once",
		"let commands become another user, by sudo or another setuid program, although leaderelect may be unable to end them then",
		runner.Restart, runner.StepDown)
}

func (m *memberFlags) check(c *common) error {
	if err := m.commandFlags.check(c); err != nil {
		return err
	}
	switch {
	case m.weight < 1:
		return usage("--weight is %d, must be at least 1", m.weight)
	case m.capacity < 0 || m.maxMoving < 1:
		return usage("--capacity is %d and --max-moving %d, must be at least 0 and 1", m.capacity, m.maxMoving)
	case m.room < 0 || m.room > shard.MaxAssignment:
		return usage("--max-assignment is %d, must be from 1 to %d", m.room, shard.MaxAssignment)
	case c.priority != 0 || c.extendEvery != 0 || c.params != "":
		return usage("--priority, --extend-every and --params are for elections: a group knows --weight, and --host-port for its clients")
	}
	return nil
}

// member is a member's config, but for the store and what it does with a shard.
func (m *memberFlags) member(a *app) (shard.Config, error) {
	cfg, err := a.candidate()
	if err != nil {
		return shard.Config{}, err
	}
	s := shard.Config{
		MemberID: cfg.LeaderID, HostPort: cfg.HostPort, Weight: m.weight, Capacity: m.capacity, Zone: m.zone, MaxMoving: m.maxMoving, MaxAssignment: m.room,
		TermLength: cfg.TermLength, MaxClockSkew: cfg.MaxClockSkew, ClockPolicy: cfg.ClockPolicy,
		PollInterval: cfg.PollInterval, Clock: cfg.Clock, Logger: cfg.Logger,
		// The runner kills at the end of drain: more is needed only if that does
		// not work at once.
		DrainTimeout: m.drain + cfg.TermLength,
	}
	if s.Shards, err = m.of(); err != nil {
		return s, err
	}
	if slices.ContainsFunc(m.names, func(v string) bool { return strings.HasPrefix(v, "@") }) {
		if _, err := s.Shards.Size(1); err != nil { // said at once, as of names that are given
			return s, err
		}
		s.Shards = shard.Listed(func(context.Context) ([]string, error) { return listed("--names", m.names) })
	}
	zones, err := m.zones()
	if len(zones) > 0 {
		s.ZoneOf = func(shard string) string { return zones[shard] }
	}
	return s, err
}

// zones are where --prefer has each shard.
func (m *memberFlags) zones() (map[string]string, error) {
	list, err := listed("--prefer", m.prefer)
	if err != nil {
		return nil, err
	}
	zones := map[string]string{}
	for _, one := range list {
		i := strings.LastIndexByte(one, '=')
		if i <= 0 {
			return nil, usage("--prefer %q: want SHARD=ZONE", one)
		}
		zones[one[:i]] = one[i+1:]
	}
	return zones, nil
}

func (a *app) shardsRunCommand() *cobra.Command {
	var f memberFlags
	c := &cobra.Command{
		Use: "run [flags] [URL] --shards N -- COMMAND [ARGUMENT...]",

		DisableFlagsInUseLine: true, // cobra writes them last: there they belong to COMMAND

		Short: "Run a command for each shard that this member owns",
		Args:  commandAfterDash(true),
		RunE: a.onURLAndCommand(func(c *cobra.Command, url string, command []string) error {
			return a.shardsRun(c.Context(), &f, url, command)
		}),
	}
	f.flags(a, c)
	f.lifeline.flag(c, "where to keep the lifeline, so that others on this machine need not wait for the term when this process, its guards and the commands are all dead")
	return c
}

func (a *app) shardsRun(ctx context.Context, f *memberFlags, url string, command []string) error {
	m, err := a.newMember(f, url, command)
	if err != nil {
		return err
	}
	line, err := f.lifeline.forCandidate(a)
	if err != nil {
		return err
	}
	if line != nil {
		defer line.Close()
		m.cfg.Lifeline = line
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.signals(cancel, m.commands)()
	return m.outcome(m.run(ctx, cancel))
}

// member is one member of a group that runs commands.
type member struct {
	a        *app
	url      string
	cfg      shard.Config
	tell     *supervisor
	commands *shards.Commands
	begun    func(*store.Group, *shard.Member) // optional
	verdict

	counting sync.Mutex
	owned    int
}

// newMember returns a member that has not begun, or what is wrong with the flags.
func (a *app) newMember(f *memberFlags, url string, command []string) (*member, error) {
	err := f.check(&a.common)
	if err != nil {
		return nil, err
	}
	m := &member{a: a, url: url}
	if m.cfg, err = f.member(a); err != nil {
		return nil, err
	}
	if m.tell, err = f.readiness.open(a, m.cfg.MemberID); err != nil {
		return nil, err
	}
	c := f.config(url, m.cfg.MemberID, command, m.cfg.Logger)
	c.Finish = m.finish
	m.commands = shards.NewCommands(c)
	m.cfg.OnOwned = m.own
	m.cfg.Trace = &leaderelection.Trace{Extended: m.commands.Extended}
	a.begun(proc.CodeFailed)
	if !strings.Contains(command[0], shards.Placeholder) {
		if err := f.find(command[0]); err != nil {
			return nil, err
		}
	}
	return m, m.commands.Check()
}

// run takes part until ctx ends, and returns the cause.
func (m *member) run(ctx context.Context, cancel context.CancelCauseFunc) error {
	m.ended = cancel
	defer m.tell.start(ctx)()
	g, err := m.a.openGroup(ctx, m.url)
	if err != nil {
		return err
	}
	defer g.Close()
	m.cfg.Store = g.Store
	joined, err := m.cfg.Start(ctx)
	if err != nil {
		return err
	}
	if m.begun != nil {
		m.begun(g, joined)
	}
	m.count(0) // it may own some already
	if m.tell.when == whenStanding {
		m.tell.n.Ready()
	}
	return joined.Wait()
}

// own is the member's OnOwned.
func (m *member) own(ctx context.Context, o *shard.Owned) error {
	m.count(1)
	defer m.count(-1)
	m.tell.leads()
	return m.commands.Owned(ctx, o)
}

// count tells the supervisor how many shards there are.
func (m *member) count(more int) {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.owned += more
	switch m.owned {
	case 0:
		m.tell.n.Status("owns no shard")
	case 1:
		m.tell.n.Status("owns 1 shard")
	default:
		m.tell.n.Status(fmt.Sprintf("owns %d shards", m.owned))
	}
}

// outcome is the exit code, and what to say with it.
func (m *member) outcome(err error) error {
	if verdict, given := m.given(); given {
		return verdict
	}
	return ended(err)
}

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
		Args:  commandAfterDash(false),
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
