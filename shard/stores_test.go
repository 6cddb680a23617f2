//go:build go1.25

package shard

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
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

// good is a Store of records that are there.
func good(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }

// A Store that hangs for the next seat keeps the coordinator from nothing else: what is
// known is shared out, other elections go on, and when it returns the seat's member is seen.
func TestStoreHangsForTheCoordinator(t *testing.T) {
	both(t, func(g *group) {
		hangs := newGate(seatName(1))
		g.join("a", hangs.change)
		g.settles(12, time.Minute)
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
		a := g.join("a", hangs.change)
		g.settles(12, time.Minute)
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
		a := g.join("a", hangs.change)
		g.settles(12, time.Minute)
		b := g.join("b")
		g.settles(12, time.Minute)
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
		g.join("a")
		g.settles(12, time.Minute)
		var said said
		hangs := newGate(seatName(1))
		b := g.join("b", hangs.change, func(c *Config) { c.Logger = said.logger() })
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
		var mu sync.Mutex
		fails := true
		g.join("a", func(c *Config) {
			store := c.Store
			c.Logger = said.logger()
			c.Store = func(name string) (leaderelection.RaceDecider, error) {
				mu.Lock()
				defer mu.Unlock()
				if fails && name == seatName(1) {
					return nil, errors.New("no more connections")
				}
				return store(name)
			}
		})
		g.settles(12, time.Minute)
		g.join("b")
		time.Sleep(4 * T)
		if n := g.counts(); n["a"] != 12 || !said.has("a seat cannot be read", "seat=1", "no more connections") {
			g.t.Errorf("owned are %v; it said:\n%s", n, &said)
		}
		mu.Lock()
		fails = false
		mu.Unlock()
		g.settles(12, 2*T)
	})
}

// Start waits for a Store that hangs as long as it says, and not when ctx has ended; so do
// observers and operators.
func TestStoreHangsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := newGate(coordinatorName, assignmentName, seatName(0))
		store := hangs.before(good)
		cfg := Config{Store: store, MemberID: "a", Shards: Numbered(1), OnOwned: func(context.Context, *Owned) error { return nil }}
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
		m, err := Config{Store: good, MemberID: "a", Shards: Numbered(1), OnOwned: func(context.Context, *Owned) error { return nil }}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
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
	result = func() (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }
	if _, err := s.get(t.Context(), time.Hour, "x"); err != nil || calls != 5 {
		t.Errorf("%v, after %d calls", err, calls)
	}
}
