//go:build go1.25

package shard

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// Members share the shards evenly; one that joins gets what balance needs, and no shard
// moves for another reason; one that leaves gives all back.
func TestShare(t *testing.T) {
	both(t, func(g *group) {
		for _, id := range []string{"a", "b", "c"} {
			g.join(id)
		}
		took := g.settles(12, time.Minute)
		g.t.Logf("settled after %v: %v", took, g.counts())
		time.Sleep(time.Minute)
		g.moved()
		g.join("d")
		g.t.Logf("one more after %v: %v", g.settles(12, time.Minute), g.counts())
		time.Sleep(time.Minute)
		if n := g.moved(); n != 3 {
			g.t.Errorf("%d moves for one that joins three with 12 shards", n)
		}
		g.all()[0].leave()
		g.t.Logf("one less after %v: %v", g.settles(12, time.Minute), g.counts())
		time.Sleep(time.Minute)
		if n := g.moved(); n != 3 {
			g.t.Errorf("%d moves for one that leaves", n)
		}
	})
}

// What a member had that dies, or is cut off, others have within a term, the skew and a second;
// if it was the coordinator, a term later.
func TestCrash(t *testing.T) {
	both(t, func(g *group) {
		for _, id := range []string{"a", "b", "c"} {
			g.join(id)
		}
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		for _, p := range g.all() {
			begin := time.Now()
			p.cut()
			g.hide(p)
			g.t.Logf("%s, session %v, is gone: settled after %v", p.id, p.member.Session(), g.settles(12, 3*T))
			g.show(p)
			p.heal()
			g.settles(12, 3*T)
			time.Sleep(time.Minute - time.Since(begin)%time.Second)
		}
	})
}

// What a group costs the store depends on its members, not on its shards: at most 8
// operations a term for each member on a polled store, and 3 on one that pushes.
func TestCost(t *testing.T) {
	for _, shards := range []int{10, 1000} {
		both(t, func(g *group) {
			g.every.Store(int64(T))
			for i := range 10 {
				g.join(fmt.Sprint("m", i), func(c *Config) { c.Shards, c.MaxMoving = Numbered(shards), 10000 })
			}
			g.settles(shards, 10*time.Minute)
			time.Sleep(4 * T)
			g.mu.Lock()
			clear(g.asked)
			g.mu.Unlock()
			const terms = 20
			time.Sleep(terms * T)
			g.mu.Lock()
			all := 0
			for _, n := range g.asked {
				all += n
			}
			g.mu.Unlock()
			each := float64(all) / 10 / terms
			size := len(g.record(assignmentName).Entry().ConnectionParams)
			g.t.Logf("%d shards, 10 members: %.2f operations a term for each member; the assignment takes %d bytes", shards, each, size)
			if most := map[bool]float64{false: 3, true: 8}[g.polled]; each > most {
				g.t.Errorf("more than %v", most)
			}
			if size > 200<<10 {
				g.t.Error("more than 200 KB")
			}
		})
	}
}

// A shard that is owned and idle costs nothing but its callback's goroutine.
func BenchmarkOwnedValueInFuture(b *testing.B) {
	view := viewtest.New(nil, 0)
	view.Set(time.Now().Add(time.Hour))
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			view.ValueInFuture()
		}
	})
	o := &Owned{view: view.TimeView}
	b.Run("owned", func(b *testing.B) {
		for b.Loop() {
			o.ValueInFuture()
		}
	})
}

// A shard's gate has the shard's token under the shard's own name, and not that of the seat. It
// closes with the shard's view, and when the shard is let go before.
func TestOwnedGate(t *testing.T) {
	view := viewtest.New(nil, 3)
	view.Set(time.Now().Add(time.Hour))
	o := &Owned{name: "7", token: 12, view: view.TimeView}
	gate := o.Gate("orders")
	token, err := gate.Token()
	if err != nil || token.String() != "orders%2F7:12" {
		t.Errorf("%v, %v", token, err)
	}
	if back, err := fence.ParseToken(token.String()); err != nil || back != token {
		t.Errorf("read back: %v, %v", back, err)
	}
	o.over.Store(true)
	if _, err := gate.Token(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("after the shard was let go: %v", err)
	}
	if _, err := new(Owned).Gate("orders").Token(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("of a zero Owned: %v", err)
	}
}

// The same key is of the same shard for ever, in every language; when one shard more is
// there, keys move only to that; and all get about as many.
func TestForKey(t *testing.T) {
	for _, v := range []struct {
		key string
		n   int
		is  int
	}{
		{"", 1, 0},
		{"", 2, 0},
		{"", 64, 27},
		{"", 1000, 978},
		{"", 2147483647, 2078399900},
		{"a", 1, 0},
		{"a", 2, 1},
		{"a", 64, 57},
		{"a", 1000, 572},
		{"a", 2147483647, 993672499},
		{"customer-1", 1, 0},
		{"customer-1", 2, 0},
		{"customer-1", 64, 33},
		{"customer-1", 1000, 115},
		{"customer-1", 2147483647, 1034394593},
		{"customer-2", 1, 0},
		{"customer-2", 2, 0},
		{"customer-2", 64, 5},
		{"customer-2", 1000, 251},
		{"customer-2", 2147483647, 184804495},
		{"Zürich", 1, 0},
		{"Zürich", 2, 0},
		{"Zürich", 64, 13},
		{"Zürich", 1000, 424},
		{"Zürich", 2147483647, 620083050},
	} {
		if got := ForKey(v.key, v.n); got != v.is {
			t.Errorf("ForKey(%q, %d) = %d, want %d", v.key, v.n, got, v.is)
		}
	}
	for n := 1; n < 40; n++ {
		counts, moved := make([]int, n+1), 0
		for k := range 4000 {
			key := fmt.Sprint("customer-", k)
			a, b := ForKey(key, n), ForKey(key, n+1)
			if counts[b]++; a != b {
				if moved++; b != n {
					t.Fatalf("%s moves from %d to %d when shard %d comes", key, a, b, n)
				}
			}
		}
		if want := 4000 / (n + 1); slices.Min(counts) < want*6/10 || slices.Max(counts) > want*14/10 {
			t.Errorf("%d shards: %v", n+1, counts)
		}
	}
}
