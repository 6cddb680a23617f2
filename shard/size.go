package shard

import (
	"fmt"
	"math/rand/v2"
	"sort"

	"github.com/c8e606e4/leaderelection"
)

// usualMembers is how many members a group's assignment must have room for from the start.
const usualMembers = 10

// Size returns how many bytes the assignment of s takes in its record's ConnectionParams,
// divided among members whose names have 16 bytes, after some hundred thousand moves. It
// is about that: tokens grow with moves, and what is alike is compressed. If even that is
// more than a record may have, or s is no set of shards, it returns an error; that a
// record is too small wraps [ErrTooLarge].
func (s Shards) Size(members int) (int, error) {
	size, err := s.size(members, MaxAssignment)
	if err != nil {
		return 0, fmt.Errorf("shard: %w", err)
	}
	return size, nil
}

// size is Size, where a record has room for limit bytes.
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

// fit is about how many of s fit into limit bytes, if not all do.
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
