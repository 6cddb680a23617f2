//go:build go1.25

package shard

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

// Operators pin, and empty a member, from anywhere.
func TestOperators(t *testing.T) {
	both(t, func(g *group) {
		for _, id := range []string{"a", "b", "c"} {
			g.join(id)
		}
		g.settles(12, time.Minute)
		op := Operator{Store: func(name string) (leaderelection.RaceDecider, error) { return g.record(name).Handle(), nil }}
		ctx := context.Background()
		for _, err := range []error{op.Drain(ctx, "b"), op.Drain(ctx, "b"), op.Pin(ctx, "3", "b"), op.Pin(ctx, "3", "b")} {
			if err != nil {
				g.t.Fatal(err)
			}
		}
		time.Sleep(4 * T)
		if n := g.counts(); n["b"] != 1 || n["a"]+n["c"] != 11 {
			g.t.Errorf("b is drained, and shard 3 pinned to it: %v", n)
		}
		version := g.record(assignmentName).Entry().ElectionNumber
		if time.Sleep(time.Minute); g.record(assignmentName).Entry().ElectionNumber != version {
			g.t.Error("the assignment is written again and again")
		}
		if err := errors.Join(op.Undrain(ctx, "b"), op.Unpin(ctx, "3")); err != nil {
			g.t.Fatal(err)
		}
		g.settles(12, 8*T)
		if err := op.Pin(ctx, "12", "b"); err == nil || !strings.Contains(err.Error(), `no shard "12"`) {
			g.t.Errorf("pinning a shard that is not there: %v", err)
		}
		if err := op.Unpin(ctx, "12"); !errors.Is(err, ErrNoShard) {
			g.t.Errorf("unpinning a shard that is not there: %v", err)
		}
		if err := op.Unpin(ctx, "3"); err != nil {
			g.t.Errorf("unpinning a shard that is not pinned: %v", err)
		}
	})
	err := Operator{Store: func(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }}.Drain(t.Context(), "a")
	if !errors.Is(err, ErrNoGroup) {
		t.Errorf("no group: %v", err)
	}
}

// Observers hear of each version, merged at most.
func TestWatch(t *testing.T) {
	both(t, func(g *group) {
		ctx, cancel := context.WithCancel(context.Background())
		var last *Assignment
		watched := make(chan error)
		go func() {
			watched <- WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) {
				if g.polled {
					return g.record(name).Handle().Polled(), nil
				}
				return g.record(name).Handle(), nil
			}}.Watch(ctx, func(_ context.Context, a *Assignment) {
				if last != nil && a.Version() <= last.Version() {
					g.t.Errorf("version %d after %d", a.Version(), last.Version())
				}
				last = a
			})
		}()
		time.Sleep(time.Minute)
		a := g.join("a")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		cancel()
		if err := <-watched; !errors.Is(err, context.Canceled) {
			g.t.Error(err)
		}
		o, ok := last.Owner("7")
		if !ok || o.Member != "a" || o.Session != a.member.Session() || o.HostPort[0] != "a:80" || o.Token == 0 || last.Len() != 12 || len(last.Members()) != 1 {
			g.t.Errorf("shard 7: %+v, %v", o, ok)
		}
		if _, ok := last.Owner("12"); ok {
			g.t.Error("there is no shard 12")
		}
	})
}

// A wrong Config is refused with all its faults, and nothing is asked of the store.
func TestBadInput(t *testing.T) {
	one := memory.NewDecider()
	records := map[string]*memory.Decider{}
	good := func() Config {
		return Config{
			MemberID: "a", Shards: Numbered(3), OnOwned: func(context.Context, *Owned) error { return nil },
			Store: func(name string) (leaderelection.RaceDecider, error) {
				if records[name] == nil {
					records[name] = memory.NewDecider()
					records[name].Inject(func(memory.Op) memory.Fault {
						t.Error("the store is asked")
						return memory.Fault{}
					})
				}
				return records[name], nil
			},
		}
	}
	long := strings.Repeat("x", maxName+1)
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no store":   {func(c *Config) { c.Store = nil }, "Store is nil"},
		"no decider": {func(c *Config) { c.Store = func(string) (leaderelection.RaceDecider, error) { return nil, nil } }, "no decider"},
		"a failure": {func(c *Config) {
			c.Store = func(string) (leaderelection.RaceDecider, error) { return nil, errors.New("no bucket") }
		}, "no bucket"},
		"one decider":  {func(c *Config) { c.Store = func(string) (leaderelection.RaceDecider, error) { return one, nil } }, "same decider"},
		"no name":      {func(c *Config) { c.MemberID = "" }, "MemberID is empty"},
		"long name":    {func(c *Config) { c.MemberID = long }, "257 bytes"},
		"no shards":    {func(c *Config) { c.Shards = Shards{} }, "no Shards"},
		"twice":        {func(c *Config) { c.Shards = Named("x", "y", "x") }, `"x" is there twice`},
		"empty":        {func(c *Config) { c.Shards = Named("x", "") }, "is empty"},
		"long":         {func(c *Config) { c.Shards = Named(long) }, "257 bytes"},
		"too many":     {func(c *Config) { c.Shards = Numbered(MaxShards + 1) }, "more than a group may have"},
		"negative":     {func(c *Config) { c.Shards = Numbered(-1) }, "cannot be"},
		"no unit":      {func(c *Config) { c.DrainTimeout = 30 }, "DrainTimeout is 30ns: a bare number"},
		"no OnOwned":   {func(c *Config) { c.OnOwned = nil }, "OnOwned is nil"},
		"weight":       {func(c *Config) { c.Weight = -1 }, "Weight is -1"},
		"term":         {func(c *Config) { c.TermLength = 5 }, "TermLength is 5ns"},
		"skew":         {func(c *Config) { c.MaxClockSkew = time.Hour }, "must be at least twice MaxClockSkew"},
		"not the room": {func(c *Config) { c.Shards = Named(random(3000, 200)...) }, "a record has room for"},
	} {
		cfg := good()
		c.change(&cfg)
		cfg.ClockPolicy = 9 // which the election refuses: the error names all faults
		if _, err := cfg.Start(t.Context()); !errors.Is(err, leaderelection.ErrConfig) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "ClockPolicy is 9") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// random returns n names that no compression makes shorter.
func random(n, length int) []string {
	rng := rand.New(rand.NewPCG(1, 5))
	names := make([]string, n)
	for i := range names {
		b := make([]byte, length)
		for k := range b {
			b[k] = byte(' ' + rng.IntN(94))
		}
		names[i] = string(b)
	}
	return names
}

// An observer whose store must be asked reads the coordinator's record, which is small, and
// the assignment when there is another; and a read that fails is tried again.
func TestWatchReadsLittle(t *testing.T) {
	both(t, func(g *group) {
		g.join("a")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		var reads, told atomic.Int32
		ctx, cancel := context.WithCancel(context.Background())
		watched := make(chan error)
		go func() {
			watched <- WatchConfig{Store: func(name string) (leaderelection.RaceDecider, error) {
				d := g.record(name).Handle()
				d.Inject(func(op memory.Op) memory.Fault {
					if name != assignmentName || op.Kind != memory.Read {
						return memory.Fault{}
					}
					if reads.Add(1) == 1 {
						return memory.Fault{Err: memory.ErrLost}
					}
					return memory.Fault{}
				})
				if g.polled {
					return d.Polled(), nil
				}
				return d, nil
			}}.Watch(ctx, func(context.Context, *Assignment) { told.Add(1) })
		}()
		time.Sleep(10 * T)
		cancel()
		<-watched
		if most := map[bool]int32{true: 4, false: 30}[g.polled]; told.Load() != 1 || reads.Load() > most { // Watch itself reads a vacant record
			g.t.Errorf("told of %d assignments, by %d reads", told.Load(), reads.Load())
		}
	})
}

// Members that share a MemberID never own a shard at once, and both have their part: the
// judge sees to the first.
func TestOneMemberIDTwice(t *testing.T) {
	both(t, func(g *group) {
		a := g.join("a")
		g.settles(12, time.Minute)
		b := g.join("b", func(c *Config) { c.MemberID = "a" })
		g.settles(12, 2*time.Minute)
		if x, y := a.member.Session(), b.member.Session(); x == y || x == (SessionID{}) || y == (SessionID{}) {
			t.Errorf("sessions %v and %v", x, y)
		}
		b.cut()
		g.hide(b)
		g.settles(12, 5*T)
		g.show(b)
	})
}

// Two processes with one MemberID are reported, even if the program has no Logger: then by the
// default one, which is told what is wrong and nothing else.
func TestOneMemberIDTwiceIsLogged(t *testing.T) {
	var own, others said
	old := slog.Default()
	slog.SetDefault(others.logger())
	defer slog.SetDefault(old)
	play(t, func(g *group) {
		g.join("a", func(c *Config) { c.Logger = own.logger() })
		g.settles(12, time.Minute)
		if text := own.String(); strings.Contains(text, "stopped") || strings.Contains(text, "given up") {
			t.Errorf("Start tells of a campaign that was tried only:\n%s", text)
		}
		g.join("b", func(c *Config) { c.MemberID, c.Logger = "a", nil })
		g.settles(12, 2*time.Minute)
		time.Sleep(2 * T)
		if !own.has("several processes have one MemberID", "[a]") {
			t.Errorf("logged:\n%s", &own)
		}
		if text := others.String(); strings.Contains(text, "level=INFO") {
			t.Errorf("without a Logger:\n%s", text)
		}
		g.all()[0].leave() // who coordinates
		time.Sleep(4 * T)
		b := g.join("c", func(c *Config) { c.MemberID, c.Logger = "a", nil })
		time.Sleep(4 * T)
		if !others.has("level=WARN", "several processes have one MemberID") {
			t.Errorf("without a Logger:\n%s", &others)
		}
		_ = b
	})
}

// Shards that find no room stay without an owner, and the coordinator says how many.
func TestCapacityTooSmall(t *testing.T) {
	play(t, func(g *group) {
		var said said
		small := func(c *Config) { c.Capacity, c.Logger = 4, said.logger() }
		g.join("a", small)
		g.join("b", small)
		time.Sleep(time.Minute)
		if n := g.counts(); n["a"] != 4 || n["b"] != 4 {
			t.Errorf("of 12 shards, with room for 8: %v", n)
		}
		if !said.has("find no member with room", "shards=4") {
			t.Errorf("it was not said that 4 shards find no room:\n%s", &said)
		}
		g.join("c", small)
		g.settles(12, time.Minute)
		if !said.has("every shard finds a member with room again") || said.has("find no member with room", "shards=0") {
			t.Errorf("it was not said that all shards find room again:\n%s", &said)
		}
	})
}

// A member of which the group has other numbered shards says so, and is given none.
func TestMembersThatDisagree(t *testing.T) {
	play(t, func(g *group) {
		var said said
		g.join("a")
		g.settles(12, time.Minute)
		b := g.join("b", func(c *Config) { c.Shards, c.Logger = Numbered(5), said.logger() })
		g.hide(b)
		time.Sleep(time.Minute)
		g.settles(12, time.Minute)
		g.show(b)
		if !said.has("the group's shards are not this member's", "shards=12", "own=5") {
			t.Errorf("it was not said that the members disagree:\n%s", &said)
		}
	})
}

// As many shards by other names are others, too: both sides are named. It is said once, and
// again when another coordinator has others still.
func TestMembersThatDisagreeOnNames(t *testing.T) {
	play(t, func(g *group) {
		var b, c said
		with := func(said *said, names ...string) func(*Config) {
			return func(c *Config) { c.Shards, c.Logger = Named(names...), said.logger() }
		}
		a := g.join("a", with(new(said), "x", "y", "z"))
		g.settles(3, time.Minute)
		g.join("b", with(&b, "x", "v", "w"))
		g.settles(3, time.Minute)
		time.Sleep(4 * T)
		if n := strings.Count(b.String(), "are not this member's"); n != 1 || !b.has("are not this member's", "shards=3", "own=3", `missing="\"v\", \"w\""`, `unknown="\"y\", \"z\""`) {
			t.Errorf("it was said %d times that the members disagree:\n%s", n, &b)
		}
		a.leave()
		g.settles(3, 2*T)
		g.join("c", with(&c, "x", "v", "q"))
		g.settles(3, time.Minute)
		if !c.has("are not this member's", `missing="\"q\""`, `unknown="\"w\""`) {
			t.Errorf("it was not said that the members disagree:\n%s", &c)
		}
	})
}

// While the group gets rid of shards that its members have not, they agree.
func TestMembersThatAgree(t *testing.T) {
	play(t, func(g *group) {
		var said said
		is := func(names ...string) func(*Config) {
			return func(c *Config) { c.Shards, c.Logger = Named(names...), said.logger() }
		}
		a := g.join("a", is("u", "v", "w", "x"))
		g.settles(4, time.Minute)
		b := g.join("b", is("y", "z"))
		g.settles(4, time.Minute)
		b.linger.Store(int64(T))
		a.leave() // b coordinates, and has two that are to go
		time.Sleep(time.Second)
		if now := b.member.Assignment(); now.Len() != 4 {
			t.Errorf("there are %+v", now)
		}
		c := g.join("c", is("y", "z"))
		time.Sleep(time.Second)
		if now := c.member.Assignment(); now == nil || now.Len() != 4 || said.has("id=c ", "are not this member's") {
			t.Errorf("c knows %+v, and says\n%s", now, &said)
		}
		b.linger.Store(0)
		g.settles(2, 2*T)
	})
}

// What differs is told by names, and whether what the group has too many of is about to go.
func TestDiffers(t *testing.T) {
	a := of(1, Named("a", "b", "c", "d"), placed{0, 1, false}, placed{0, 1, true}, placed{none, 1, false}, placed{0, 1, false})
	for name, c := range map[string]struct {
		a                *assignment
		want             Shards
		missing, unknown string
		going            bool
	}{
		"the same": {a, Named("a", "b", "c", "d"), "", "", true},
		"about to": {a, Named("a", "d"), "", `"b", "c"`, true},
		"one less": {a, Named("a", "b", "c"), "", `"d"`, false},
		"more":     {a, Named("a", "b", "c", "d", "e"), `"e"`, "", true},
		"others":   {a, Named("x", "y", "d"), `"x", "y"`, `"a", "b", "c"`, false},
		"many":     {a, Numbered(9), `"0", "1", "2" and 6 more`, `"a", "b", "c" and 1 more`, false},
		"forms":    {of(1, Numbered(2), placed{0, 1, false}, placed{0, 1, false}), Named("0", "1"), "", "", true},
	} {
		if missing, unknown, going := c.a.differs(c.want); missing != c.missing || unknown != c.unknown || going != c.going {
			t.Errorf("%s: missing %s, unknown %s, %v", name, missing, unknown, going)
		}
	}
}

// said is what was logged.
type said struct{ logtest.Log }

func (s *said) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// has reports whether one line has all of these.
func (s *said) has(parts ...string) bool {
	for line := range strings.Lines(s.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}
