package shards_test

import (
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/shards"
)

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
