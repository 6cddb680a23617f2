//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
)

// A wrong Config is refused with all its faults, and nothing is asked of the store.
func TestBadInput(t *testing.T) {
	one := memory.NewDecider()
	asked := new(memgroup.Records).With(func(memory.Op) memory.Fault { t.Error("the store is asked"); return memory.Fault{} })
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
		cfg := Config{MemberID: "a", Shards: Numbered(3), OnOwned: idle, Store: asked}
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

// Shards that do not fit are refused by Start, which says how many would: nine tenths of
// those do, and eleven tenths do not.
func TestHowManyShardsFit(t *testing.T) {
	names := random(1200, 200)
	for name, c := range map[string]struct {
		shards func(n int) Shards
		n, max int
	}{
		"names":   {func(n int) Shards { return Named(names[:n]...) }, len(names), 0},
		"numbers": {Numbered, 6000, 8 << 10},
	} {
		start := func(n int) error {
			m, err := Config{MemberID: "a", Shards: c.shards(n), MaxAssignment: c.max, Store: good, OnOwned: idle}.Start(t.Context())
			if err == nil {
				err = m.Leave(t.Context())
			}
			return err
		}
		err := start(c.n)
		found := regexp.MustCompile(`about (\d+) of them would fit`).FindStringSubmatch(fmt.Sprint(err))
		if !errors.Is(err, ErrTooLarge) || found == nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		fit, _ := strconv.Atoi(found[1])
		if few, many := start(fit*9/10), start(fit*11/10); few != nil || !errors.Is(many, ErrTooLarge) || fit < c.n/10 {
			t.Errorf("%s: of %d fit %d, it says; 9/10 of these: %v; 11/10: %v", name, c.n, fit, few, many)
		}
	}
	if _, err := (Config{MaxAssignment: MaxAssignment + 1}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "MaxAssignment is 184321") {
		t.Error(err)
	}
	if _, err := Numbered(-1).Size(3); err == nil {
		t.Error("-1 shards have a size")
	}
}

// A seat is free that is vacant, or over by MaxClockSkew; of one that is not compared with
// clocks nobody can tell.
func TestFreeSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			entry          leaderelection.RaceEntry
			unsynchronized bool
			free           bool
		}{
			"vacant":                {leaderelection.RaceEntry{TermExpiry: time.Now().Add(T)}, false, true},
			"held":                  {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(T)}, false, false},
			"over, but for a clock": {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-S)}, false, false},
			"over":                  {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-S - 1)}, false, true},
			"no common clock":       {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-T), Unsynchronized: true}, false, false},
			"nor in the Config":     {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-T)}, true, false},
			"vacant, no clock":      {leaderelection.RaceEntry{Unsynchronized: true}, true, true},
		} {
			m := &Member{cfg: Config{MaxClockSkew: S}.withDefaults()}
			if c.unsynchronized {
				m.cfg.ClockPolicy = leaderelection.Unsynchronized
			}
			if got := m.free(&c.entry); got != c.free {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

// What a seat's record cannot say is no member.
func TestSeatsThatCannotBe(t *testing.T) {
	for text, fits := range map[string]bool{
		`{"form":"seat/1","member":"a","weight":1}`:               true,
		`{"form":"seat/1","member":"a","weight":1,"capacity":3}`:  true,
		`{"form":"seat/2","member":"a","weight":1}`:               false,
		`{"form":"seat/1","weight":1}`:                            false,
		`{"form":"seat/1","member":"a","weight":0}`:               false,
		`{"form":"seat/1","member":"a","weight":1,"capacity":-1}`: false,
		`{`: false,
	} {
		_, err := readSeat(&leaderelection.RaceEntry{LeaderID: "a", ConnectionParams: []byte(text)})
		if (err == nil) != fits || err != nil && !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A seat that looked free, and whose member has extended it after all, is given up for another.
func TestSeatThatIsExtendedAfterAll(t *testing.T) {
	play(t, func(g *group) {
		info := must(json.Marshal((&Member{cfg: Config{MemberID: "slow", Weight: 1}}).info()))(t)
		e := &leaderelection.RaceEntry{LeaderID: "slow#1", Incarnation: "slow", ElectionNumber: 3, ConnectionParams: info, TermLength: T, TermExpiry: time.Now().Add(-2 * S)}
		seat := g.Of(seatName(0))
		seat.Replace(e)
		a := g.join("a")
		a.suffer(memory.Fail(memory.ErrLost).On(memory.Write))
		time.Sleep(time.Second)
		e.Extension, e.TermLength, e.TermExpiry = 1, time.Hour, time.Now().Add(time.Hour)
		seat.Replace(e)
		a.heal()
		time.Sleep(T)
		if s := a.member.Session(); s.Seat != 1 {
			t.Errorf("it has %v", s)
		}
	})
}

// Members that share a MemberID never own a shard at once, and both have their part: the
// judge sees to the first. It is logged; of the campaign that Start only tries, nothing is.
func TestOneMemberIDTwice(t *testing.T) {
	both(t, func(g *group) {
		var said said
		a := g.with("a", said.log)
		if text := said.String(); strings.Contains(text, "stopped") || strings.Contains(text, "given up") {
			t.Errorf("Start tells of a campaign that was tried only:\n%s", text)
		}
		b := g.join("b", func(c *Config) { c.MemberID = "a" })
		g.settles(12, 2*time.Minute)
		if x, y := a.member.Session(), b.member.Session(); x == y || x == (SessionID{}) || y == (SessionID{}) {
			t.Errorf("sessions %v and %v", x, y)
		}
		if time.Sleep(2 * T); !said.has("level=WARN", "several processes have one MemberID", "[a]") {
			t.Errorf("logged:\n%s", &said)
		}
		g.without(b, 5*T)
	})
}

// That shards find no room, or fail everywhere, is logged once, and again when it is otherwise.
func TestComplains(t *testing.T) {
	var said said
	d := newDesk(t, 1)
	d.cfg.MemberID, d.cfg.Logger = "a", said.logger()
	c := bench(t, d, nil)
	for i, step := range []struct {
		now  decision
		says string
	}{
		{decision{}, ""},
		{decision{homeless: 4}, `find no member with room" id=a shards=4`},
		{decision{homeless: 4}, ""},
		{decision{homeless: 4, failing: 2}, `every member has failed with some shards" id=a shards=2`},
		{decision{}, "every shard finds a member with room again"},
	} {
		c.complain(&step.now)
		if text := said.Take(); !strings.Contains(text, step.says) || strings.Count(text, "\n") != min(len(step.says), 1) {
			t.Errorf("step %d: logged\n%s, want %q", i, text, step.says)
		}
	}
}

// As many shards by other names are others, too: both sides are named. It is said once, and again when
// the group has others still; not while it gets rid of what the member does not have.
func TestMembersThatDisagree(t *testing.T) {
	var said said
	m := newMember(Config{MemberID: "b", Shards: Named("v", "w", "x"), Logger: said.logger()}.withDefaults(), newStores(nil))
	held, going := placed{0, 1, false}, placed{0, 1, true}
	others := of(1, Named("x", "y", "z"), held, held, held)
	for i, c := range []struct {
		a    *assignment
		says string
	}{
		{others, `shards=3 own=3 missing="\"v\", \"w\"" unknown="\"y\", \"z\""`},
		{others, ""},
		{of(1, Named("v", "w", "x"), held, held, held), ""},
		{of(1, Named("v", "w", "x", "y"), held, held, held, going), ""},
		{of(1, Named("q", "v", "x"), held, held, held), `missing="\"w\"" unknown="\"q\""`},
	} {
		m.learn(c.a)
		if text := said.Take(); !strings.Contains(text, c.says) || (text == "") != (c.says == "") {
			t.Errorf("step %d: logged\n%s, want %q", i, text, c.says)
		}
	}
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

// A KeyName is that of a shard only if there are so many. (TestOperatorWrites: to operators too.)
func TestKeyName(t *testing.T) {
	if name := KeyName("customer 3", 1); name != "0/1" {
		t.Errorf("KeyName is %q", name)
	}
	m := &Member{owned: map[string]*Owned{"1": {name: "1", of: 4}, "a": {name: "a"}, "b/0": {name: "b/0"}}}
	for name, want := range map[string]bool{"1": true, "1/4": true, "1/5": false, "1/": false, "1/4/4": false, "01/4": false, "a": true, "a/0": false, "b/0": true, "b": false} {
		if o, _ := m.Shard(name); (o != nil) != want {
			t.Errorf("a member's shard %q: %v", name, o)
		}
	}
	for name, want := range map[string]int{
		"0": 0, "1": 1, "11": 11, "1/12": 1, "1/5": none, "12/12": none, "1/12/12": none, "/12": none,
		"01": none, "+1": none, "-0": none, "12": none, "-1": none, "": none, "1 ": none, "١": none, // though some are the same numbers
	} {
		if i := Numbered(12).index(name); i != want {
			t.Errorf("shard %q of 12 is %d, want %d", name, i, want)
		}
	}
	a := of(7, Numbered(2), placed{0, 1, false}, placed{0, 1, false})
	a.failures = map[string][]failure{"1": {{Member: "a", Count: 1, Until: time.Now()}}}
	if known := a.public(); len(known.Failures("1/2")) != 1 || len(known.Failures("1")) != 1 || len(known.Failures("1/3")) != 0 {
		t.Errorf("failures %v, by the bare name %v", known.Failures("1/2"), known.Failures("1"))
	}
}

// A record that is not this group's, or no assignment that can be, is refused, and says why.
func TestForeignAssignments(t *testing.T) {
	good := `{"form":"shards/1","numbered":1,"sessions":[{"seat":0,"number":1,"member":"a"}],"places":[[0,1]]}`
	entry := func(text string) *leaderelection.RaceEntry {
		return &leaderelection.RaceEntry{ElectionNumber: 3, Incarnation: "id", ConnectionParams: []byte(text)}
	}
	if a, err := readAssignment(entry(good)); err != nil || a.version != 3 || a.places[0] != (placed{0, 1, false}) {
		t.Fatalf("%+v, %v", a, err)
	}
	led := entry(good)
	led.LeaderID = "x"
	edit := func(old, new string) *leaderelection.RaceEntry { return entry(strings.Replace(good, old, new, 1)) }
	for says, e := range map[string]*leaderelection.RaceEntry{
		`which "x" leads`:        led,
		`its form is "shards/2"`: edit("shards/1", "shards/2"),
		`unknown field "more"`:   edit(`"places"`, `"more":1,"places"`),
		"of session 1 of 1":      edit("[0,1]", "[1,1]"),
		"of session -2 of 1":     edit("[0,1]", "[-2,1]"),
		"places 1 shards of 2":   edit(`"numbered":1`, `"numbered":2`),
		"impossible place":       edit("[0,1]", "[0,0]"),
		"is not a place":         edit("[0,1]", "[0,1,2]"),
		"is there twice":         edit(`"sessions":[`, `"sessions":[{"seat":0,"number":1,"member":"b"},`),
		"cannot be understood":   entry("\x1f\x8bnothing"),
	} {
		if _, err := readAssignment(e); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// A change is made to a copy: who holds the assignment before sees nothing of it.
func TestClonesShareNothing(t *testing.T) {
	a := of(1, Numbered(1), placed{0, 1, false})
	a.pins, a.drained = map[string]string{"0": "a"}, []string{"x"}
	b := a.clone()
	b.sessions[0].Member, b.places[0].token, b.drained[0], b.pins["0"] = "b", 2, "y", "b"
	if a.sessions[0].Member != "a" || a.places[0].token != 1 || a.drained[0] != "x" || a.pins["0"] != "a" {
		t.Errorf("%+v", a)
	}
}

// tenants is a list of shards that changes.
type tenants struct {
	answer           atomic.Pointer[func() ([]string, error)]
	asked, now, most atomic.Int32
}

func (l *tenants) list(context.Context) ([]string, error) {
	l.asked.Add(1)
	l.most.Store(max(l.most.Load(), l.now.Add(1)))
	defer l.now.Add(-1)
	return (*l.answer.Load())()
}

func (l *tenants) set(err error, names ...string) {
	answer := func() ([]string, error) { return names, err }
	l.answer.Store(&answer)
}

// Shards that a function lists come and go without a restart. While it fails, or lists none, they
// stay as they are. That is logged, and that it works again.
func TestListedShards(t *testing.T) {
	both(t, func(g *group) {
		var l tenants
		l.set(errors.New("the database is away"))
		var said said
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, said.log, func(c *Config) { c.Shards = Listed(l.list) })
		}
		time.Sleep(2 * T)
		if n := g.counts(); len(n) > 3 || n["a"]+n["b"]+n["c"] != 0 {
			g.t.Errorf("%v before anything was listed", n)
		}
		l.set(nil, "blue", "red", "green", "white")
		g.settles(4, time.Minute)
		said.wants(g.t, "the shards cannot be listed", "the shards are listed again")
		l.set(nil, "blue", "red", "green", "white", "new", "newer")
		g.settles(6, time.Minute)
		blue, _ := g.all()[0].member.Assignment().Owner("blue")
		l.set(nil, "blue", "newer", "new")
		g.settles(3, time.Minute)
		for _, c := range []struct {
			err   error
			names []string
		}{{errors.New("away again"), nil}, {nil, nil}, {nil, []string{"blue", "blue"}}} {
			l.set(c.err, c.names...)
			time.Sleep(3 * T)
			g.settles(3, time.Second)
		}
		if o, _ := g.all()[0].member.Assignment().Owner("blue"); o.Token != blue.Token {
			g.t.Errorf("%+v owns what was listed all the time, and before %+v", o, blue)
		}
		l.set(nil, "blue", "newer", "new")
		before := l.asked.Load()
		time.Sleep(10 * T)
		if n := l.asked.Load() - before; n < 8 || n > 12 {
			g.t.Errorf("asked %d times in ten terms", n)
		}
	})
}

// A list that hangs is called by nobody again, keeps nobody from leaving, and moves nothing.
func TestListThatHangs(t *testing.T) {
	play(t, func(g *group) {
		var l tenants
		l.set(nil, "blue", "red")
		g.join("a", func(c *Config) { c.Shards = Listed(l.list) })
		g.settles(2, time.Minute)
		hang := make(chan struct{})
		hangs := func() ([]string, error) { <-hang; return []string{"blue"}, nil } // and takes no notice of its ctx
		l.answer.Store(&hangs)
		time.Sleep(10 * T)
		g.settles(2, time.Second)
		g.all()[0].leave()
		if l.most.Load() != 1 || l.now.Load() != 1 {
			t.Errorf("%d calls at once", l.most.Load())
		}
		close(hang)
		time.Sleep(time.Second)
	})
}
