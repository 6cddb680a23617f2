//go:build go1.25

package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// poisoned has OnOwned of a shard fail at the members that are named, and counts that.
func poisoned(tries map[string]int, mu *sync.Mutex, name string, at ...string) func(*Config) {
	return func(c *Config) {
		own, id := c.OnOwned, c.MemberID
		c.OnOwned = func(ctx context.Context, o *Owned) error {
			if o.Name() == name && slices.Contains(at, id) {
				mu.Lock()
				defer mu.Unlock()
				tries[id]++
				return errors.New("it is poison: " + strings.Repeat("x", 1000))
			}
			return own(ctx, o)
		}
	}
}

// A shard with which a member fails is tried elsewhere, and nothing else moves for it but what
// balance needs; the assignment says who has failed.
func TestFailedShardsAreTriedElsewhere(t *testing.T) {
	both(t, func(g *group) {
		var mu sync.Mutex
		tries := map[string]int{}
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, poisoned(tries, &mu, "3", "a", "b"))
			time.Sleep(time.Minute)
		}
		g.settles(12, time.Minute)
		o, _ := g.all()[0].member.Assignment().Owner("3")
		if o.Member != "c" {
			g.t.Errorf("%+v has the shard that works at c alone", o)
		}
		failures := g.all()[0].member.Assignment().Failures("3")
		for _, f := range failures {
			if tries[f.Member] != f.Count || !strings.HasPrefix(f.Err, "it is poison") || len(f.Err) > 200 {
				g.t.Errorf("%+v after %d tries", f, tries[f.Member])
			}
		}
		_, _, failing := g.all()[0].member.Assignment().Totals()
		if len(failures) != len(tries) || len(failures) == 0 || failing != 1 {
			g.t.Errorf("%+v of %v", failures, tries)
		}
	})
}

// A shard with which all members fail is tried again, more and more rarely, and takes nobody
// down.
func TestFailedShardsBackOff(t *testing.T) {
	both(t, func(g *group) {
		var mu sync.Mutex
		tries := map[string]int{}
		members := []string{"a", "b", "c"}
		for _, id := range members {
			g.join(id, poisoned(tries, &mu, "3", members...))
		}
		g.every.Store(int64(time.Second))
		time.Sleep(30 * time.Minute)
		mu.Lock()
		for _, id := range members {
			if n := tries[id]; n < 4 || n > 8 {
				g.t.Errorf("%s has tried %d times in half an hour", id, n)
			}
		}
		mu.Unlock()
		all := 0
		for _, n := range g.counts() {
			if all += n; n < 3 || n > 4 {
				g.t.Errorf("%v", g.counts())
			}
		}
		if all != 11 {
			g.t.Errorf("%d shards are owned", all)
		}
	})
}

// A pin holds though the member fails: the shard waits for it.
func TestFailedShardsWaitForTheirPin(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.sits(1, 1, 0, nil)
	d.a.pins = map[string]string{"0": "a"}
	d.a.shards, d.a.places = Numbered(2), []placed{{none, 1, false}, {none, 1, false}}
	d.a.failures = map[string][]failure{"0": {{Member: "a", Count: 1, Until: time.Now().Add(time.Minute)}}}
	if d.next(); d.owner(0) != none || d.owner(1) == none {
		t.Errorf("%+v", d.a.places)
	}
	d.a.failures["0"][0].Until = time.Now().Add(-time.Second)
	if d.next(); d.owner(0) != 0 || len(d.a.failures) != 1 {
		t.Errorf("%+v when it may be tried again", d.a.places)
	}
	d.a.failures["0"][0].Until = time.Now().Add(-forget - time.Second)
	if d.next(); len(d.a.failures) > 0 {
		t.Errorf("%+v is remembered", d.a.failures)
	}
}

// An OnOwned that never returns keeps its member from nothing but that shard, though its
// session has ended.
func TestStuckCallback(t *testing.T) {
	play(t, func(g *group) {
		var once sync.Once
		let := make(chan struct{})
		var said said
		a := g.join("a", func(c *Config) {
			own := c.OnOwned
			c.Logger = said.logger()
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				stuck := false
				once.Do(func() { stuck = true })
				if stuck {
					<-let
					return nil
				}
				return own(ctx, o)
			}
		})
		g.join("b")
		time.Sleep(time.Minute)
		before := a.member.Session()
		if before == (SessionID{}) {
			t.Fatal("it has no session")
		}
		a.cut()
		g.hide(a)
		g.settles(12, 3*T)
		if s := a.member.Session(); s != (SessionID{}) {
			t.Errorf("its session is %v, which has ended", s)
		}
		g.show(a)
		a.heal()
		time.Sleep(4 * T)
		if s := a.member.Session(); s == (SessionID{}) || s == before || len(a.member.Owned()) < 5 {
			t.Errorf("its session is %v, after %v, and it owns %d", s, before, len(a.member.Owned()))
		}
		if !said.has("OnOwned has not returned") {
			t.Errorf("nothing is said of it:\n%s", &said)
		}
		close(let)
		g.settles(12, 10*T)
	})
}

// Rule 6: what a member that leaves has let go is another's, though one OnOwned of it takes long.
func TestRule06LeavesShardByShard(t *testing.T) {
	both(t, func(g *group) {
		a := g.join("a", func(c *Config) {
			own := c.OnOwned
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				err := own(ctx, o)
				if o.Name() == "3" {
					time.Sleep(T - 2*time.Second)
				}
				return err
			}
		})
		g.settles(12, time.Minute)
		g.join("b")
		g.operatorPins("3", "a")
		g.settles(12, 2*time.Minute)
		time.Sleep(time.Minute)
		g.hide(a)
		go func() { _ = a.member.Leave(context.Background()) }()
		time.Sleep(3 * time.Second)
		if g.polled {
			time.Sleep(T / 2)
		}
		if n := g.counts()["b"]; n != 11 {
			g.t.Errorf("b owns %d while one callback of a runs", n)
		}
		g.settles(12, 2*T)
		g.show(a)
	})
}

// Rule 6: what a member is given while it leaves is let go at once, and never owned.
func TestRule06TakesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		s.leave()
		read(gives(1, 3, placed{0, 6, false}))
		if s.owns() != 0 || s.letGo["0"] != 6 {
			t.Errorf("it owns %d, and says that it has let go of %v", s.owns(), s.letGo)
		}
	})
}

func (g *group) operatorPins(shard, member string) {
	if err := g.operator().Pin(context.Background(), shard, member); err != nil {
		g.t.Error(err)
	}
}

// Rule 13: nothing of a numbering is given out before all of the one before is let go, and then
// by greater tokens than any of it.
func TestRule13NumberingsDoNotMix(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.sits(1, 1, 0, nil)
	d.next()
	d.a.places[1].token = 9
	d.cfg.Shards = Numbered(3)
	d.sits(0, 1, 1, nil) // as if both had come again
	d.sits(1, 1, 1, nil)
	d.next()
	if d.a.Len() != 2 || !d.a.places[0].releasing || !d.a.places[1].releasing {
		t.Fatalf("of the old numbering: %+v", d.a.places)
	}
	d.sits(d.owner(0), 1, 2, map[string]uint64{"0": 1})
	d.next()
	if d.a.Len() != 2 || d.owner(0) != none || d.owner(1) == none {
		t.Fatalf("while one is not let go: %+v", d.a.places)
	}
	d.vacant(d.owner(1), 1)
	d.next()
	if d.a.Len() != 3 {
		t.Fatalf("when all are let go: %+v", d.a.places)
	}
	for i, p := range d.a.places {
		if p.session == none || p.token != 10 {
			t.Errorf("shard %d: %+v, want token 10, after 9 of another that may have had its keys", i, p)
		}
	}
}

func (a *assignment) Len() int { return a.shards.Len() }

// Rule 13: no key has two owners while members are replaced by such with another number of
// shards, whoever coordinates; and nobody is given shards of a number that it does not know.
func TestRule13OneOwnerOfAKey(t *testing.T) {
	both(t, func(g *group) {
		of := func(n int) func(*Config) {
			return func(c *Config) {
				own := c.OnOwned
				c.Shards, c.OnOwned = Numbered(n), func(ctx context.Context, o *Owned) error {
					if o.Of() != n {
						g.t.Errorf("a member of %d shards is given one of %d", n, o.Of())
					}
					return own(ctx, o)
				}
			}
		}
		keys := make([]string, 50)
		for i := range keys {
			keys[i] = fmt.Sprint("customer ", i)
		}
		ctx, cancel := context.WithCancel(context.Background())
		judged := make(chan struct{})
		go func() {
			defer close(judged)
			for ctx.Err() == nil {
				owners := map[string]*Owned{}
				for _, p := range g.all() {
					for _, o := range p.member.Owned() {
						for _, key := range keys {
							if fmt.Sprint(ForKey(key, o.Of())) != o.Name() {
								continue
							}
							if other := owners[key]; other != nil {
								g.t.Errorf("%s has two owners: shard %s of %d, and %s of %d", key, o.Name(), o.Of(), other.Name(), other.Of())
								return
							}
							owners[key] = o
						}
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, of(4))
		}
		g.settles(4, time.Minute)
		for i, id := range []string{"d", "e", "f"} {
			g.join(id, of(9))
			time.Sleep(time.Minute)
			g.all()[0].leave()
			time.Sleep(time.Minute)
			if a := g.all()[0].member.Assignment(); i == 2 && (a.Len() != 9 || a.Of() != 9 || a.Version() == leaderelection.NoElections) {
				g.t.Errorf("there are %d shards when all members know 9", a.Len())
			}
		}
		g.settles(9, time.Minute)
		cancel()
		<-judged
	})
}
