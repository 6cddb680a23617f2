package shard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/c8e606e4/leaderelection"
)

// draw makes a group: members of equal weight, some shards owned by them.
func draw(rng *rand.Rand, members, shards int) ([]planMember, []planShard) {
	ms := make([]planMember, members)
	for i := range ms {
		ms[i] = planMember{id: fmt.Sprint("m", i), weight: 1}
	}
	ss := make([]planShard, shards)
	for i := range ss {
		ss[i] = planShard{owner: rng.IntN(members+1) - 1, pin: none}
	}
	return ms, ss
}

func count(members int, target []int) []int {
	n := make([]int, members)
	for _, m := range target {
		if m != none {
			n[m]++
		}
	}
	return n
}

// moves is how many shards that have an owner get another one.
func moves(shards []planShard, target []int) int {
	n := 0
	for i, s := range shards {
		if s.owner != none && target[i] != s.owner {
			n++
		}
	}
	return n
}

// Loads of equal members differ by one at most, nothing is left over, and no balanced
// plan moves less: every one is tried.
func TestPlanIsBalancedWithFewestMoves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		m, n := 1+rng.IntN(4), rng.IntN(8)
		members, shards := draw(rng, m, n)
		target := plan(members, shards)
		if c := count(m, target); slices.Max(c)-slices.Min(c) > 1 {
			t.Fatalf("%d shards: %v", n, c)
		}
		if n > 0 && slices.Contains(target, none) {
			t.Fatalf("left over: %v", target)
		}
		fewest := n + 1
		var try func(i int, t []int)
		try = func(i int, t []int) {
			if i == n {
				if c := count(m, t); slices.Max(c)-slices.Min(c) <= 1 {
					fewest = min(fewest, moves(shards, t))
				}
				return
			}
			for o := range m {
				t[i] = o
				try(i+1, t)
			}
		}
		try(0, make([]int, n))
		if got := moves(shards, target); got != fewest {
			t.Fatalf("%v -> %v: %d moves, %d would do", shards, target, got, fewest)
		}
	}
}

// What a member joins with, and what is left when one goes, is exactly what balance needs.
func TestPlanJoinAndLeave(t *testing.T) {
	members, shards := draw(rand.New(rand.NewPCG(1, 2)), 9, 10000)
	for i, m := range plan(members, shards) {
		shards[i].owner = m
	}
	joined := append(slices.Clone(members), planMember{id: "new", weight: 1})
	target := plan(joined, shards)
	if got := moves(shards, target); got != 1000 {
		t.Errorf("%d moves for one that joins nine, want 1000", got)
	}
	for i, m := range target {
		if shards[i].owner = m; m == 3 {
			shards[i].owner = none
		}
	}
	joined[3].drained = true
	if got := moves(shards, plan(joined, shards)); got != 0 {
		t.Errorf("%d moves of others' shards when one has gone", got)
	}
}

// Whatever the weights, capacities, drained members, pins and zones: no member has more than
// its capacity, a drained one no more than its pins, a pinned shard is elsewhere
// only if its member is full of pins, nothing waits for room that is there, the shares follow the weights, and a plan that
// was carried out is not changed again.
func TestPlanLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	zones := []string{"", "a", "b"}
	for range 3000 {
		m := 1 + rng.IntN(6)
		members, shards := draw(rng, m, rng.IntN(40))
		for i := range members {
			members[i].weight, members[i].drained, members[i].zone = 1+rng.IntN(4), rng.IntN(5) == 0, zones[rng.IntN(3)]
			if rng.IntN(3) == 0 {
				members[i].capacity = 1 + rng.IntN(10)
			}
		}
		for i := range shards {
			shards[i].zone = zones[rng.IntN(3)]
			if rng.IntN(6) == 0 {
				shards[i].pin = rng.IntN(m)
			}
		}
		target := plan(members, shards)
		checkLimits(t, members, shards, target)
		for i, o := range target {
			shards[i].owner = o
		}
		if again := plan(members, shards); !slices.Equal(again, target) {
			t.Fatalf("%+v %+v: %v becomes %v", members, shards, target, again)
		}
	}
}

func checkLimits(t *testing.T, members []planMember, shards []planShard, target []int) {
	t.Helper()
	has, pinned := count(len(members), target), make([]int, len(members))
	for i, s := range shards {
		if s.pin != none && target[i] == s.pin {
			pinned[s.pin]++
		}
	}
	waiting := false
	for i, s := range shards {
		waiting = waiting || target[i] == none
		if p := s.pin; p != none && target[i] != p && (members[p].capacity == 0 || pinned[p] < members[p].capacity) {
			t.Fatalf("shard %d is pinned to %d, which has room, and goes to %d", i, p, target[i])
		}
	}
	for i, m := range members {
		full := m.capacity > 0 && has[i] >= m.capacity
		switch {
		case m.capacity > 0 && has[i] > m.capacity:
			t.Fatalf("%+v gets %d", m, has[i])
		case m.drained && has[i] > pinned[i]:
			t.Fatalf("%+v gets %d, %d pinned", m, has[i], pinned[i])
		case waiting && !m.drained && !full:
			t.Fatalf("a shard waits, and %+v with %d has room", m, has[i])
		}
		for j, o := range members {
			// To take one from i and give it to j would not be fairer.
			if j != i && !o.drained && (o.capacity == 0 || has[j] < o.capacity) && has[i] > pinned[i] && has[i]*o.weight > (has[j]+1)*m.weight {
				t.Fatalf("%+v has %d, %+v has %d", m, has[i], o, has[j])
			}
		}
	}
}

// Of the shards that must move, those go first to a member in their zone that can be
// placed there; and a member gives away what is of another zone.
func TestPlanZones(t *testing.T) {
	members := []planMember{{id: "a", weight: 1, zone: "a"}, {id: "b", weight: 1, zone: "b"}}
	var shards []planShard
	for i := range 10 {
		shards = append(shards, planShard{owner: 0, pin: none, zone: []string{"a", "b"}[i%2]})
	}
	for i, m := range plan(members, shards) {
		if members[m].zone != shards[i].zone {
			t.Errorf("shard %d of zone %s goes to %s", i, shards[i].zone, members[m].id)
		}
	}
	for i := range shards {
		shards[i].owner = none
	}
	for i, m := range plan(members, shards) {
		if members[m].zone != shards[i].zone {
			t.Errorf("unowned shard %d of zone %s goes to %s", i, shards[i].zone, members[m].id)
		}
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte{1, 0, 0, 2, 3, 1}, []byte{0, 1, 2, 3, 255})
	f.Fuzz(func(t *testing.T, m, s []byte) {
		if len(m) == 0 || len(m) > 64 || len(s) > 512 {
			return
		}
		var members []planMember
		for i, b := range m {
			members = append(members, planMember{id: fmt.Sprint(i), weight: 1 + int(b&3), capacity: int(b >> 4), drained: b&4 != 0, zone: string("ab"[b>>3&1])})
		}
		var shards []planShard
		for i, b := range s {
			p := planShard{owner: int(b)%(len(m)+1) - 1, pin: none, zone: string("ab"[b>>7])}
			if i%5 == 0 {
				p.pin = int(b>>2) % len(m)
			}
			shards = append(shards, p)
		}
		checkLimits(t, members, shards, plan(members, shards))
	})
}

func BenchmarkPlan(b *testing.B) {
	members, shards := draw(rand.New(rand.NewPCG(1, 4)), 10, 10000)
	for b.Loop() {
		plan(members, shards)
	}
}

// The same key is of the same shard for ever, in every language; when one shard more is
// there, keys move only to that; and all get about as many.
func TestForKey(t *testing.T) {
	of := []int{1, 2, 64, 1000, 2147483647}
	for key, want := range map[string][]int{
		"":           {0, 0, 27, 978, 2078399900},
		"a":          {0, 1, 57, 572, 993672499},
		"customer-1": {0, 0, 33, 115, 1034394593},
		"customer-2": {0, 0, 5, 251, 184804495},
		"Zürich":     {0, 0, 13, 424, 620083050},
	} {
		for i, n := range of {
			if got := ForKey(key, n); got != want[i] {
				t.Errorf("ForKey(%q, %d) = %d, want %d", key, n, got, want[i])
			}
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

// FuzzAssignment reads assignments of any bytes. What can be read is written, and read, as the same.
func FuzzAssignment(f *testing.F) {
	full := &assignment{
		version: 7, id: "id", shards: Named("a", "b"), retired: 9, pins: map[string]string{"b": "m"}, drained: []string{"n"},
		sessions: []session{{SessionID: SessionID{0, 3}, Member: "m"}, {SessionID: SessionID{4, 1}, Member: "n"}},
		places:   []placed{{0, 5, true}, {none, 1, false}},
	}
	for _, a := range []*assignment{full, {version: 1, id: "id", shards: Numbered(3000), places: make([]placed, 3000)}} {
		for i := range a.places {
			if len(a.sessions) == 0 {
				a.places[i].session = none
			}
		}
		e, err := a.entry(maxText)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.ConnectionParams, true)
	}
	f.Add([]byte(`{"form":"shards/9"}`), true)
	f.Add([]byte{0x1f, 0x8b, 8}, true)
	f.Add([]byte(`{"form":"`+assignmentForm+`","numbered":3,"named":[],"places":[]}`), true)
	f.Add([]byte(`{"form":"`+assignmentForm+`","numbered":1,"places":[[-1,0,1]]}`), false)
	for _, place := range []string{"[]", "[1]", "[0,1]", "[-1,-1]", "[-1,9223372036854775808]", "[-1,0,1,1]"} {
		f.Add([]byte(`{"form":"`+assignmentForm+`","numbered":1,"places":[`+place+`]}`), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, packed bool) {
		if !packed { // so that the fuzzer need not learn gzip
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(text)
			_ = z.Close()
			text = b.Bytes()
		}
		a, err := readAssignment(&leaderelection.RaceEntry{ElectionNumber: 7, Incarnation: "id", ConnectionParams: text})
		if err != nil {
			if !errors.Is(err, ErrForeign) || a != nil {
				t.Fatalf("%v, %v", a, err)
			}
			return
		}
		for _, p := range a.places {
			if p.session < none || p.session >= len(a.sessions) {
				t.Fatalf("of session %d of %d", p.session, len(a.sessions))
			}
		}
		if a.public() == nil || !a.clone().same(a) {
			t.Fatalf("%+v is not the same as its copy", a)
		}
		e, err := a.entry(maxText)
		if err != nil {
			t.Fatalf("it was read, and cannot be written: %v", err)
		}
		again, err := readAssignment(e)
		if err != nil {
			t.Fatalf("it was written, and cannot be read: %v", err)
		}
		if !again.same(a) {
			t.Fatalf("%+v is read again as %+v", a, again)
		}
	})
}

// FuzzSeat reads seats of any bytes.
func FuzzSeat(f *testing.F) {
	m := &Member{cfg: Config{MemberID: "m", Zone: "z", Capacity: 3}.withDefaults()}
	info := m.info()
	info.LetGo, info.Failed = map[string]uint64{"a": 5}, map[string]string{"a": "why"}
	text, err := json.Marshal(info)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"form":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readSeat(&leaderelection.RaceEntry{LeaderID: "m#1", ElectionNumber: 1, ConnectionParams: text})
		if err != nil && !errors.Is(err, ErrForeign) || err == nil && (s.Member == "" || s.Weight < 1 || s.Capacity < 0) {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}

// Zero values answer, and own nothing.
func TestZeroValues(t *testing.T) {
	for _, a := range []*Assignment{nil, {}} {
		if owner, is := a.Owner("1"); a.Version() != 0 || a.Len() != 0 || a.Of() != 0 || is || owner.Member != "" || len(a.Members())+len(a.Pins())+len(a.Drained())+len(a.Failures("1")) != 0 {
			t.Errorf("%+v", a)
		}
		if unowned, moving, failing := a.Totals(); unowned+moving+failing != 0 {
			t.Errorf("%d unowned, %d moving, %d failing", unowned, moving, failing)
		}
	}
	var o Owned
	if o.ValueInFuture() || !o.Get().IsZero() || o.ElectionNumber() != 0 || o.Name() != "" || o.Context().Err() == nil || o.Clock() == nil || o.Of() != 0 {
		t.Errorf("%+v", o.Name())
	}
}
