//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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
			m, err := Config{MemberID: "a", Shards: c.shards(n), MaxAssignment: c.max, Store: good, OnOwned: func(context.Context, *Owned) error { return nil }}.Start(t.Context())
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

// The coordinator says once that the assignment nears what it may take, and how many shards
// would fit; and what a store refuses, with its size.
func TestRoomIsLogged(t *testing.T) {
	shards := Named(random(200, 100)...)
	size, err := shards.Size(usualMembers)
	if err != nil {
		t.Fatal(err)
	}
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
		g.join("a", func(c *Config) {
			store := c.Store
			c.Logger = said.logger()
			c.Store = func(name string) (leaderelection.RaceDecider, error) {
				d, err := store(name)
				if name == assignmentName {
					d.(interface{ Inject(memory.Faults) }).Inject(memory.Fail(fmt.Errorf("max_payload: %w", leaderelection.ErrPermanent)).On(memory.Write))
				}
				return d, err
			}
		})
		time.Sleep(T)
		if !said.has("the assignment of 12 shards takes", "max_payload", "set MaxAssignment") {
			t.Errorf("it says\n%s", &said)
		}
	})
}

// A seat's record says no more at a time of what was let go than it has room for, and all of
// it in the end.
func TestRule11NoMoreThanFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		const n = 1500
		var names []string
		for i := range n {
			names = append(names, strings.Repeat("\x01", 30)+fmt.Sprintf("%0200d", i))
		}
		shards, places := Named(names...), make([]placed, n)
		for i := range places {
			places[i] = placed{0, 7, true}
		}
		var info seatInfo
		s.tell = func(_ []string, params []byte) error {
			if len(params) > maxLetGo+1<<10 {
				t.Fatalf("%d bytes", len(params))
			}
			info = seatInfo{}
			return json.Unmarshal(params, &info)
		}
		rounds := 0
		for left := n; left > 0 && rounds < 100; rounds++ {
			read(of(leaderelection.ElectionNumber(rounds+1), shards, append([]placed(nil), places...)...))
			if len(info.LetGo) == 0 {
				t.Fatalf("nothing is said, of %d", left)
			}
			if rounds == 0 { // what is said stays said
				said, more := maps.Clone(s.letGo), maps.Clone(s.letGo)
				more[strings.Repeat("\x00", 200)] = 7
				if s.announce(more); !maps.Equal(s.letGo, said) {
					t.Fatalf("it says %d others", len(s.letGo))
				}
			}
			for i := range places { // as a coordinator does
				if info.LetGo[names[i]] == 7 && places[i].session == 0 {
					places[i], left = placed{none, 7, false}, left-1
				}
			}
		}
		if rounds < 5 || rounds > 20 {
			t.Errorf("%d assignments", rounds)
		}
	})
}

// A move of many shards with long names is made in parts.
func TestManyLongNamesMove(t *testing.T) {
	play(t, func(g *group) {
		g.every.Store(int64(time.Second))
		var said said
		var names []string
		for i := range 1200 {
			names = append(names, fmt.Sprintf("%0250d", i))
		}
		change := func(c *Config) { c.Shards, c.MaxMoving, c.Logger = Named(names...), len(names), said.logger() }
		g.join("a", change)
		g.settles(len(names), time.Minute)
		g.join("b", change)
		g.settles(len(names), 10*T)
		if said.has("cannot be said") {
			t.Errorf("it says %.2000s", &said)
		}
	})
}
