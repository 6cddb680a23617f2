package shards_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
	"github.com/c8e606e4/leaderelection/shard"
)

// What a group goes through, as an observer tells of it, and what it is in the end.
func TestEventsAndState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records memgroup.Records
		join := func(id string, set shard.Shards) *shard.Member {
			m, err := shard.Config{Store: records.Store, MemberID: id, Shards: set, ClockPolicy: leaderelection.SharedClock, Weight: 2, Capacity: 9, Zone: "z",
				HostPort: []string{id + ":80"}, OnOwned: func(ctx context.Context, _ *shard.Owned) error { <-ctx.Done(); return nil }}.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			return m
		}
		leave := func(m *shard.Member) {
			if err := m.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		seen := map[string]int{}
		var follow shards.Follower
		watched := make(chan struct{})
		w := shard.WatchConfig{Store: records.Store, ClockPolicy: leaderelection.SharedClock}
		go func() {
			defer close(watched)
			_ = w.Watch(ctx, func(_ context.Context, a *shard.Assignment) {
				for _, e := range follow.Changed(a, time.Now()) {
					seen[e.Event]++
					if text := e.Text(); !strings.Contains(text, fmt.Sprintf("version %d: ", a.Version())) || strings.ContainsAny(text, "\n\x1b") {
						t.Errorf("%q", text)
					}
				}
				if again := follow.Changed(a, time.Now()); len(again) != 0 {
					t.Errorf("no change has the events %+v", again)
				}
			})
		}()
		a := join("a", shard.Named("one", "two", "three\x1b[2J"))
		b := join("b", shard.Named("one", "two", "three\x1b[2J"))
		o := shard.Operator{Store: records.Store}
		if err := o.Pin(t.Context(), "one", "b"); err != nil {
			t.Error(err)
		}
		if err := o.Drain(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		as, err := w.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seats, err := w.Seats(t.Context(), as)
		if err != nil {
			t.Fatal(err)
		}
		s := shards.Of(as, seats, time.Now())
		if s.Owned != 3 || s.Unowned != 0 || s.Lost != 0 || len(s.Members) != 2 || !s.Calm() {
			t.Errorf("%+v", s)
		}
		another := slices.Clone(seats)
		for i := range another {
			another[i].Session.Number++
		}
		if s := shards.Of(as, another, time.Now()); s.Calm() || s.Lost != 3 {
			t.Errorf("the seats are other sessions' by now: %+v", s)
		}
		for i, want := range []shards.Member{
			{ID: "a", Seat: 0, State: shards.Alive, HostPort: []string{"a:80"}, Drained: true, Weight: 2, Capacity: 9, Zone: "z"},
			{ID: "b", Seat: 1, State: shards.Alive, HostPort: []string{"b:80"}, Owned: 3, Weight: 2, Capacity: 9, Zone: "z"},
		} {
			got := s.Members[i]
			if got.Left <= 0 {
				t.Errorf("%s has %v s left", got.ID, got.Left)
			}
			want.Session = uint64([]*shard.Member{a, b}[i].Session().Number)
			if got.Left = 0; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		if text := s.Text(true); strings.Contains(text, "\x1b") || !strings.Contains(text, `"three\x1b[2J"  b`) || !strings.Contains(text, "pinned to b") {
			t.Errorf("%s", text)
		}
		leave(b)
		leave(a)
		a = join("a", shard.Named("one"))
		leave(a)
		cancel()
		<-watched
		for kind, least := range map[string]int{shards.Began: 1, shards.Owned: 3, shards.Moving: 1, shards.Unowned: 1, shards.Removed: 2, shards.Joined: 2, shards.Left: 1} {
			if seen[kind] < least {
				t.Errorf("%d events %q, want %d at least: %v", seen[kind], kind, least, seen)
			}
		}
		as, _ = w.Read(t.Context())
		if seats, err = w.Seats(t.Context(), as); err != nil {
			t.Fatal(err)
		}
		if s := shards.Of(as, seats, time.Now()); s.Calm() || s.Lost+s.Unowned != s.Shards {
			t.Errorf("after all have left: %+v", s)
		}
		if id, err := w.Coordinator(t.Context()); id != "" || err != nil {
			t.Errorf("%q coordinates, %v", id, err)
		}
	})
}

// What an operator asks for is refused if it cannot happen, and what it waits for is said.
func TestWhatCannotHappen(t *testing.T) {
	member := func(id string, owned, capacity int) shards.Member {
		return shards.Member{ID: id, State: shards.Alive, Owned: owned, Capacity: capacity}
	}
	gone := shards.Member{ID: "gone", State: shards.Over, Owned: 1}
	drained := member("drained", 0, 0)
	drained.Drained = true
	pins := map[string]string{"1": "a", "2": "a", "3": "b"}
	for name, c := range map[string]struct {
		members                 []shards.Member
		coordinator             string
		cannotMove, notMoved    string // shard 0 to a; of what is empty "" is wanted
		cannotDrain, notDrained string // a
	}{
		"nobody is there":     {nil, "", "no member a", "no member a", "no member a", "no member a"},
		"it is gone":          {[]shards.Member{{ID: "a", State: shards.Over}, gone}, "", "a is gone", "a is gone", "a is gone", "a is gone"},
		"alone":               {[]shards.Member{member("a", 3, 0), gone}, "a", "", "--drain", "the only member", "the only member"},
		"beside drained ones": {[]shards.Member{member("a", 3, 0), drained}, "a", "", "--drain", "all others are draining", "all others are draining"},
		"room for pins":       {[]shards.Member{member("a", 3, 3), member("b", 1, 0)}, "a", "", "--drain", "", "--drain"},
		"no room for pins":    {[]shards.Member{member("a", 2, 2), member("b", 1, 0)}, "a", "2 others are pinned", "2 others are pinned", "", "--drain"},
		"two of that name":    {[]shards.Member{member("a", 1, 1), member("a", 1, 2), member("b", 1, 0)}, "a", "", "--drain", "", "--drain"},
		"the others are full": {[]shards.Member{member("a", 2, 0), member("b", 2, 2), drained}, "a", "", "--drain", "", "no room"},
		"nobody coordinates":  {[]shards.Member{member("a", 2, 0), member("b", 2, 3)}, "", "", "nobody coordinates", "", "nobody coordinates"},
	} {
		s := &shards.State{Shards: 4, Members: c.members, Pins: pins, Coordinator: c.coordinator}
		for what, got := range map[string][2]string{
			"cannot move": {s.CannotMove("0", "a"), c.cannotMove}, "not moved": {s.NotMoved("0", "a"), c.notMoved},
			"cannot drain": {s.CannotDrain("a"), c.cannotDrain}, "not drained": {s.NotDrained("a"), c.notDrained},
		} {
			if said, want := got[0], got[1]; !strings.Contains(said, want) || (want == "") != (said == "") {
				t.Errorf("%s: %s: %q, want %q", name, what, said, want)
			}
		}
	}
	// A shard that is pinned there already takes no further room.
	s := &shards.State{Shards: 4, Members: []shards.Member{member("a", 2, 2)}, Pins: pins}
	if why := s.CannotMove("1", "a"); why != "" {
		t.Errorf("a shard that is pinned there: %s", why)
	}
}
