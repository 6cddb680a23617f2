package shard

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/c8e606e4/leaderelection"
)

// usualMembers is the number of members for which an assignment must have room from the start.
const usualMembers = 10

// Size estimates how many bytes the assignment of s takes in its record's ConnectionParams. Use it
// to find out how many shards a store has room for. The estimate is for the given number of
// members, whose names have 16 bytes, after some hundred thousand moves. The real size
// differs, since tokens grow with moves, and similar names compress better.
//
// If the assignment is larger than a record may be, the error wraps [ErrTooLarge]. If s is not a
// set of shards, Size returns another error.
func (s Shards) Size(members int) (int, error) {
	size, err := s.size(members, MaxAssignment)
	if err != nil {
		return 0, fmt.Errorf("shard: %w", err)
	}
	return size, nil
}

// size is Size for a record that has room for limit bytes.
func (s Shards) size(members, limit int) (int, error) {
	r := rand.New(rand.NewPCG(1, 2)) // the same each time
	a := &assignment{id: "any", shards: s, places: make([]placed, max(s.Len(), 0))}
	for i := range max(1, min(members, MaxShards)) {
		a.sessions = append(a.sessions, session{SessionID: SessionID{i, leaderelection.ElectionNumber(1 + r.IntN(100))}, Member: fmt.Sprintf("member-%09x", r.Uint32()), HostPort: []string{fmt.Sprintf("10.0.%d.%d:8080", i/250, i%250)}})
	}
	most := uint64(max(10, 400_000/max(s.Len(), 1)))
	for i := range a.places {
		a.places[i] = placed{session: r.IntN(len(a.sessions)), token: 1 + r.Uint64N(most)}
	}
	e, err := a.entry(limit)
	if err != nil {
		return 0, err
	}
	return len(e.ConnectionParams), nil
}

// fit estimates how many shards of s fit into limit bytes.
func (s Shards) fit(members, limit int) int {
	return sort.Search(s.Len(), func(n int) bool {
		first := Numbered(n + 1)
		if s.names != nil {
			first = Shards{names: s.names[:n+1]}
		}
		_, err := first.size(members, limit)
		return err != nil
	})
}
