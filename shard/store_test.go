//go:build go1.25

package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
)

// gate is a Store that hangs for some names, until it is opened.
type gate struct {
	mu    sync.Mutex
	shut  map[string]chan struct{}
	calls map[string]int
}

func newGate(names ...string) *gate {
	g := &gate{shut: map[string]chan struct{}{}, calls: map[string]int{}}
	for _, name := range names {
		g.shut[name] = make(chan struct{})
	}
	return g
}

// before has a Config's Store go through the gate.
func (g *gate) before(store func(string) (leaderelection.RaceDecider, error)) func(string) (leaderelection.RaceDecider, error) {
	return func(name string) (leaderelection.RaceDecider, error) {
		g.mu.Lock()
		g.calls[name]++
		shut := g.shut[name]
		g.mu.Unlock()
		if shut != nil {
			<-shut
		}
		return store(name)
	}
}

func (g *gate) change(c *Config) { c.Store = g.before(c.Store) }

func (g *gate) open(name string) { close(g.shut[name]) }

func (g *gate) called(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[name]
}

// idle is an OnOwned that does nothing.
func idle(context.Context, *Owned) error { return nil }

// good is a Store of records that are there.
func good(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }

// A Store that hangs for the next seat keeps the coordinator from nothing else: what is
// known is shared out, other elections go on, and when it returns the seat's member is seen.
func TestStoreHangsForTheCoordinator(t *testing.T) {
	both(t, func(g *group) {
		hangs := newGate(seatName(1))
		g.with("a", hangs.change)
		g.join("b")
		time.Sleep(4 * T)
		if n := g.counts(); n["a"] != 12 || n["b"] != 0 {
			g.t.Errorf("owned are %v", n)
		}
		if n := hangs.called(seatName(1)); n != 1 {
			g.t.Errorf("the call that hangs was made %d times", n)
		}
		hangs.open(seatName(1))
		g.settles(12, 4*T)
	})
}

// While a Store hangs, a member leaves in time: what it owns drains, and its seat is free.
func TestStoreHangsWhileLeaving(t *testing.T) {
	both(t, func(g *group) {
		hangs := newGate(seatName(1))
		defer hangs.open(seatName(1))
		a := g.with("a", hangs.change)
		begin := time.Now()
		a.leave()
		if took := time.Since(begin); took > T/2 {
			g.t.Errorf("it took %v to leave", took)
		}
		g.join("b")
		if took := g.settles(12, time.Minute); took > T {
			g.t.Errorf("what it had is owned again after %v", took)
		}
	})
}

// While a Store hangs, views end as they would: the coordinator that is cut off acts on
// nothing when its term is over, and another member has it all.
func TestStoreHangsAndViewsEnd(t *testing.T) {
	both(t, func(g *group) {
		hangs := newGate(seatName(2))
		defer hangs.open(seatName(2))
		a := g.with("a", hangs.change)
		b := g.with("b")
		owned := a.member.Owned()
		a.cut()
		g.hide(a)
		time.Sleep(T)
		if slices.ContainsFunc(owned, (*Owned).ValueInFuture) {
			g.t.Error("a shard may be acted on a term after its member was cut off")
		}
		g.settles(12, 4*T)
		if n := len(b.member.Owned()); n != 12 {
			g.t.Errorf("b owns %d", n)
		}
		g.show(a)
	})
}

// A member whose Store hangs for the seat that it wants has none; it says so, leaves at once
// when it is told to, and takes part once the Store returns.
func TestStoreHangsForTheSeat(t *testing.T) {
	play(t, func(g *group) {
		g.with("a")
		var said said
		hangs := newGate(seatName(1))
		b := g.join("b", hangs.change, said.log)
		time.Sleep(4 * T)
		if s := b.member.Session(); s != (SessionID{}) || !said.has("no seat", "seat-1", "has not returned within") {
			t.Errorf("b has %v; it said:\n%s", s, &said)
		}
		begin := time.Now()
		c := g.join("c", hangs.change)
		time.Sleep(time.Second)
		if c.leave(); time.Since(begin) > 2*time.Second {
			t.Errorf("it took %v to leave", time.Since(begin)-time.Second)
		}
		hangs.open(seatName(1))
		g.settles(12, 2*T)
	})
}

// A Store that fails for a seat is asked again: the member there is seen as soon as it works.
func TestStoreFailsForAWhile(t *testing.T) {
	both(t, func(g *group) {
		var said said
		var well atomic.Bool
		g.with("a", said.log, func(c *Config) {
			store := c.Store
			c.Store = func(name string) (leaderelection.RaceDecider, error) {
				if name == seatName(1) && !well.Load() {
					return nil, errors.New("no more connections")
				}
				return store(name)
			}
		})
		g.join("b")
		time.Sleep(4 * T)
		if n := g.counts(); n["a"] != 12 || !said.has("a seat cannot be read", "seat=1", "no more connections") {
			g.t.Errorf("owned are %v; it said:\n%s", n, &said)
		}
		well.Store(true)
		g.settles(12, 2*T)
	})
}

// Start waits for a Store that hangs as long as it says, and not when ctx has ended; so do
// observers and operators.
func TestStoreHangsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := newGate(coordinatorName, assignmentName, seatName(0))
		store := hangs.before(good)
		cfg := Config{Store: store, MemberID: "a", Shards: Numbered(1), OnOwned: idle}
		begin := time.Now()
		if _, err := cfg.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `Store("coordinator") has not returned within 15s`) || time.Since(begin) != patience {
			t.Errorf("Start: %v, after %v", err, time.Since(begin))
		}
		begin = time.Now()
		if err := (WatchConfig{Store: store}).Watch(t.Context(), func(context.Context, *Assignment) {}); err == nil || !strings.Contains(err.Error(), "has not returned") || time.Since(begin) != patience {
			t.Errorf("Watch: %v, after %v", err, time.Since(begin))
		}
		why := errors.New("enough")
		for name, f := range map[string]func(context.Context) error{
			"Join": cfg.Join,
			"Watch": func(ctx context.Context) error {
				return WatchConfig{Store: store}.Watch(ctx, func(context.Context, *Assignment) {})
			},
			"Read":        func(ctx context.Context) error { _, err := WatchConfig{Store: store}.Read(ctx); return err },
			"Coordinator": func(ctx context.Context) error { _, err := WatchConfig{Store: store}.Coordinator(ctx); return err },
			"Seats":       func(ctx context.Context) error { _, err := WatchConfig{Store: store}.Seats(ctx, nil); return err },
			"Pin":         func(ctx context.Context) error { return Operator{Store: store}.Pin(ctx, "0", "a") },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(why) })
			begin := time.Now()
			err := f(ctx)
			if exact := name == "Join" || name == "Watch"; !errors.Is(err, why) || exact && err != why || time.Since(begin) != time.Second {
				t.Errorf("%s: %v, after %v", name, err, time.Since(begin))
			}
		}
		for name := range hangs.shut {
			hangs.open(name)
		}
	})
}

// With a ctx that has ended before, what is wrong is told all the same: FollowShards of other
// packages goes by that.
func TestStoreIsJudgedThoughCtxHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	nothing := func(context.Context, *Assignment) {}
	bad := func(string) (leaderelection.RaceDecider, error) { return nil, errors.New("no bucket") }
	for range 100 {
		if err := (WatchConfig{Store: bad}).Watch(ctx, nothing); err == nil || !strings.Contains(err.Error(), "no bucket") {
			t.Fatalf("a bad one: %v", err)
		}
		if err := (WatchConfig{Store: good}).Watch(ctx, nothing); err != context.Canceled {
			t.Fatalf("a good one: %v", err)
		}
		m := must(Config{Store: good, MemberID: "a", Shards: Numbered(1), OnOwned: idle}.Start(ctx))(t)
		if err := m.Wait(); err != context.Canceled {
			t.Fatal(err)
		}
	}
}

// Whoever wants a record that is being opened waits for the one call; each that has another
// name is not kept by it.
func TestStoreIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := newGate("x")
		s := newStores(hangs.before(good))
		got := make(chan leaderelection.RaceDecider, 3)
		for range 3 {
			go func() {
				d, err := s.get(t.Context(), math.MaxInt64, "x")
				if err != nil {
					t.Error(err)
				}
				got <- d
			}()
		}
		synctest.Wait()
		if _, err := s.get(t.Context(), time.Second, "y"); err != nil {
			t.Error(err)
		}
		if _, err := s.get(t.Context(), time.Second, "x"); !errors.Is(err, errHangs) {
			t.Error(err)
		}
		hangs.open("x")
		if a, b, c := <-got, <-got, <-got; a != b || b != c || hangs.called("x") != 1 {
			t.Errorf("%d calls", hangs.called("x"))
		}
		if d, err := s.get(t.Context(), 0, "x"); d == nil || err != nil {
			t.Errorf("known, and no time to wait: %v", err)
		}
	})
}

// What a Store returns that is no decider is refused, and it is asked again.
func TestStoreReturnsNothing(t *testing.T) {
	var none *memory.Decider
	calls := 0
	var result func() (leaderelection.RaceDecider, error)
	s := newStores(func(string) (leaderelection.RaceDecider, error) {
		calls++
		return result()
	})
	for says, f := range map[string]func() (leaderelection.RaceDecider, error){
		"returned no decider":            func() (leaderelection.RaceDecider, error) { return nil, nil },
		`Store("x") returned no decider`: func() (leaderelection.RaceDecider, error) { return none, nil },
		"names of 10 bytes at most":      func() (leaderelection.RaceDecider, error) { return nil, errors.New("names of 10 bytes at most") },
		"ended its goroutine":            func() (leaderelection.RaceDecider, error) { runtime.Goexit(); return nil, nil },
	} {
		result = f
		if _, err := s.get(t.Context(), time.Hour, "x"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	result = func() (leaderelection.RaceDecider, error) { return byValue{memory.NewDecider(), []string{"x"}}, nil }
	for _, name := range []string{"x", "y"} {
		if _, err := s.get(t.Context(), time.Hour, name); err != nil {
			t.Errorf("values that cannot be compared: %v", err)
		}
	}
	if calls != 6 {
		t.Errorf("%d calls", calls)
	}
}

// byValue is a decider whose values cannot be compared.
type byValue struct {
	leaderelection.RaceDecider
	options any
}

// mute is a decider that returns neither a record nor an error.
type mute struct{ leaderelection.RaceDecider }

func (*mute) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) { return nil, nil } //nolint:nilnil // that is the fault

// What a Store or its decider must not return is an error, for whoever asks.
func TestReadsOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := func(string) (leaderelection.RaceDecider, error) { return &mute{memory.NewDecider()}, nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Config{Store: store, MemberID: "a", Shards: Numbered(3), OnOwned: idle}.Join(ctx)
		_, read := WatchConfig{Store: store}.Read(ctx)
		for what, err := range map[string]error{"Join": err, "Read": read, "Pin": Operator{Store: store}.Pin(ctx, "0", "a"), "Reset": Operator{Store: store}.Reset(ctx, 1, true)} {
			if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "returned nil without an error") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Calls that do not return are not made again and again: they would pile up. When they return, the
// member goes on.
func TestHangingCallsDoNotPileUp(t *testing.T) {
	for _, hangs := range []string{seatName(0), assignmentName} {
		play(t, func(g *group) {
			g.polled = true
			var out atomic.Int64
			release := make(chan struct{})
			store := g.store(func(name string, op memory.Op) (fault memory.Fault) {
				if name == hangs && op.Kind == memory.Read {
					out.Add(1)
					fault.Hang = release
				}
				return fault
			})
			g.every.Store(int64(time.Second))
			a := g.join("a", func(c *Config) { c.Store = store })
			stop := g.observe(WatchConfig{Store: store}, func(*Assignment) {})
			time.Sleep(time.Hour)
			if n := out.Load(); n < 1 || n > 2*maxCalls+5 {
				t.Errorf("%s: %d calls hang", hangs, n)
			}
			close(release)
			time.Sleep(time.Minute)
			if len(a.member.Owned()) != 12 {
				t.Errorf("%s: it owns nothing when the store is well again", hangs)
			}
			stop()
		})
	}
}

// A Store that returns deciders of one record for all seats: there is no end of seats that are
// held, or were. It is refused, and nobody reads without end.
func TestOneRecordForAllSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g memgroup.Records
		var said said
		var asked atomic.Int64
		store := func(name string) (leaderelection.RaceDecider, error) {
			if name != coordinatorName && name != assignmentName {
				if name = "seat"; asked.Add(1) > 100 {
					time.Sleep(time.Second) // else the test would have no end
				}
			}
			return g.Store(name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cfg := Config{Store: store, MemberID: "a", Shards: Numbered(3), OnOwned: idle, Logger: said.logger()}
		m := must(cfg.Start(ctx))(t)
		time.Sleep(30 * time.Second)
		cfg.MemberID = "b"
		if err := cfg.Join(ctx); !errors.Is(err, errOneRecord) {
			t.Errorf("the second member: %v", err)
		}
		if cancel(); asked.Load() > 20 || !said.has("level=ERROR", errOneRecord.Error()) {
			t.Errorf("the Store was asked for %d seats; said: %v", asked.Load(), &said)
		}
		_ = m.Wait()
		time.Sleep(time.Minute)
	})
}

// A record that refuses for good at first is used when it does not any more.
func TestRecordsThatRefuse(t *testing.T) {
	for record, owned := range map[string]int{coordinatorName: 0, seatName(1): 12} {
		play(t, func(g *group) {
			var well atomic.Bool
			g.join("a", suffering(record, func(memory.Op) memory.Fault {
				if well.Load() {
					return memory.Fault{}
				}
				return memory.Fault{Err: leaderelection.ErrPermanent}
			}))
			time.Sleep(2 * T)
			if n := g.counts()["a"]; n != owned {
				g.t.Errorf("%s refuses: %d are owned, want %d", record, n, owned)
			}
			well.Store(true)
			time.Sleep(2 * T)
			g.join("b")
			g.settles(12, T)
		})
	}
}

// A store that refuses for good before anything has worked ends Join; later nothing does, and
// a member that cannot have a seat asks for one with pauses.
func TestRefusedForGood(t *testing.T) {
	permanent := memory.Fail(leaderelection.ErrPermanent)
	play(t, func(g *group) {
		a := g.join("a", suffering("", permanent))
		time.Sleep(time.Minute)
		select {
		case <-a.member.Done():
			if err := a.member.Wait(); !errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("it goes on")
		}
	})
	play(t, func(g *group) {
		a := g.with("a")
		a.suffer(permanent)
		var asked atomic.Int32
		time.Sleep(4 * T)
		a.suffer(func(memory.Op) memory.Fault { asked.Add(1); return memory.Fault{Err: leaderelection.ErrPermanent} })
		time.Sleep(40 * T)
		if n := asked.Load(); n > 200 {
			t.Errorf("%d store operations in 40 terms", n)
		}
		select {
		case <-a.member.Done():
			t.Errorf("it has ended with %v", a.member.Wait())
		default:
		}
		a.heal()
		g.settles(12, 2*T)
	})
}

// A member that cannot read or write the assignment in an outage says so, and says when it can again. A
// second outage has its own lines.
func TestOutageIsLogged(t *testing.T) {
	play(t, func(g *group) {
		g.polled = true
		var said said
		a := g.join("a", said.log)
		for range 2 {
			time.Sleep(5 * time.Minute)
			g.settles(12, time.Minute)
			said.Take()
			a.cut()
			time.Sleep(50 * time.Second)
			a.heal()
			time.Sleep(time.Minute)
			said.wants(g.t, "no seat; trying again", "has a seat again", "the assignment cannot be read", "the assignment is read again", "the assignment stays as it is", "the assignment is kept up to date again")
		}
	})
}

// Rule 10: what is not an assignment of this group is reported and left alone; members go
// on with what they own.
func TestRule10ForeignAssignmentIsLeftAlone(t *testing.T) {
	foreign := map[string]*leaderelection.RaceEntry{
		"not ours":        {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte("{}")},
		"a newer form":    {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte(`{"form":"shards/2","places":[]}`)},
		"cut off":         {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte("\x1f\x8b\x08\x00")},
		"an election":     {ElectionNumber: 99, Incarnation: "x", LeaderID: "web", TermExpiry: time.Now()},
		"unknown session": {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte(`{"form":"shards/1","numbered":1,"places":[[0,1]]}`)},
		"no id":           {ElectionNumber: 99, ConnectionParams: []byte(`{"form":"shards/1","numbered":1,"places":[[-1,1]]}`)},
	}
	for name, e := range foreign {
		t.Run(name, func(t *testing.T) {
			play(t, func(g *group) {
				a := g.with("a")
				g.Of(assignmentName).Replace(e)
				time.Sleep(time.Minute)
				if n := len(a.member.Owned()); n != 12 {
					t.Errorf("%d shards are owned", n)
				}
				if now := g.Of(assignmentName).Entry(); string(now.ConnectionParams) != string(e.ConnectionParams) || now.ElectionNumber != 99 {
					t.Errorf("it was replaced: %+v", now)
				}
			})
		})
	}
}

// Rule 12: a store that was set back gets the newest assignment again, with a greater
// version; tokens do not go back.
func TestRule12SetBack(t *testing.T) {
	play(t, func(g *group) {
		g.with("a")
		old := g.Of(assignmentName).Entry()
		g.with("b")
		time.Sleep(time.Minute)
		version := g.Of(assignmentName).Entry().ElectionNumber
		g.Of(assignmentName).Replace(old)
		g.with("c")
		if e := g.Of(assignmentName).Entry(); e.ElectionNumber <= version {
			t.Errorf("version %d follows %d", e.ElectionNumber, version)
		}
	})
}

// Rule 12: one version with two contents: everything is let go, and a new session begins.
func TestRule12TwoContents(t *testing.T) {
	play(t, func(g *group) {
		a := g.with("a")
		before := a.member.Session()
		e := g.Of(assignmentName).Entry()
		e.Incarnation = "another"
		g.Of(assignmentName).Replace(e)
		time.Sleep((lookTerms + 2) * T)
		g.settles(12, 5*T)
		if a.member.Session() == before {
			t.Error("the session goes on")
		}
	})
}

// The coordinator says once that the assignment nears what it may take, and how many shards
// would fit; and what a store refuses, with its size.
func TestRoomIsLogged(t *testing.T) {
	shards := Named(random(200, 100)...)
	size := must(shards.Size(usualMembers))(t)
	for limit, warns := range map[int]bool{size * 11 / 10: true, size * 3 / 2: false} {
		play(t, func(g *group) {
			var said said
			change := func(c *Config) { c.Shards, c.Logger, c.MaxMoving, c.MaxAssignment = shards, said.logger(), 1000, limit }
			g.join("a", change)
			g.settles(200, time.Minute)
			g.join("b", change)
			g.settles(200, time.Minute)
			if n := strings.Count(said.String(), "little room left"); n != map[bool]int{true: 1}[warns] {
				t.Errorf("it is said %d times, of %d bytes at most:\n%s", n, limit, said.String())
			}
		})
	}
	play(t, func(g *group) {
		var said said
		g.join("a", said.log, suffering(assignmentName, memory.Fail(fmt.Errorf("max_payload: %w", leaderelection.ErrPermanent)).On(memory.Write)))
		time.Sleep(T)
		if !said.has("the assignment of 12 shards takes", "max_payload", "set MaxAssignment") {
			t.Errorf("it says\n%s", &said)
		}
	})
}
