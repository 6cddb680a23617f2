package shard

import (
	"cmp"
	"container/heap"
	"slices"
)

// planMember is a member as the plan sees it: one session that is alive.
type planMember struct {
	id       string // the order of ties
	weight   int    // its share, at least 1
	capacity int    // the most shards that it takes; 0: no limit
	drained  bool   // takes only what is pinned to it
	zone     string
}

// planShard is a shard as the plan sees it.
type planShard struct {
	owner int    // the member that has it, or none
	pin   int    // the member that it is pinned to, or none
	zone  string // where it is best placed; "" is anywhere
	// The members that have failed with it, and must not try it now; nil: none.
	avoid map[int]bool
}

// waits reports whether no member may try the shard now.
func (s *planShard) waits(members int) bool { return s.avoid[s.pin] || len(s.avoid) == members }

const (
	none  = -1
	later = -2 // none, until some member may try it again
)

// plan returns for each shard the member that should own it, or none. It is a pure
// function: the same input gives the same output, on every machine.
//
// The loads are as even as the weights, the capacities and the pins allow. With equal weights and
// without pins, the loads of members that are not full differ by one at most. Among the plans with
// such loads this is one with the fewest moves of shards that have an owner. Zones decide only
// which of a member's shards must move, and which member gets a shard that must move.
//
// A pin to a member without room for it does not count: otherwise nobody would have the shard.
//
// A shard that members have failed with goes to another member, even if that member then has more
// than its share. If there is no such member, the shard waits (later).
func plan(members []planMember, shards []planShard) []int {
	shards = withRoom(members, shards)
	target := make([]int, len(shards))
	load := loads(members, shards)
	room := slices.Clone(load)
	for i, s := range shards {
		switch {
		case s.avoid != nil && s.waits(len(members)):
			target[i] = later
		case s.pin != none:
			target[i] = s.pin
			room[s.pin]--
		default:
			target[i] = none
		}
	}
	// Each member keeps what it has, as far as there is room. First come the shards that others
	// have failed with, then those in its zone.
	for _, first := range []func(s *planShard) bool{
		func(s *planShard) bool { return s.avoid != nil },
		func(s *planShard) bool { return s.zone != "" && s.zone == members[s.owner].zone },
		func(*planShard) bool { return true },
	} {
		for i, s := range shards {
			if o := s.owner; target[i] == none && o != none && room[o] > 0 && !s.avoid[o] && first(&s) {
				target[i] = o
				room[o]--
			}
		}
	}
	elsewhere(members, shards, target, room)
	place(members, shards, target, room)
	return target
}

// withRoom returns the shards without the pins for which the members have no room. Pins of shards
// that the member already has count first.
func withRoom(members []planMember, shards []planShard) []planShard {
	shards = slices.Clone(shards)
	pinned := make([]int, len(members))
	for _, owned := range []bool{true, false} {
		for i, s := range shards {
			p := s.pin
			if p == none || owned != (s.owner == p) {
				continue
			}
			if pinned[p]++; members[p].capacity > 0 && pinned[p] > members[p].capacity {
				shards[i].pin = none
			}
		}
	}
	return shards
}

// elsewhere places the shards that some members have failed with. It gives each to that one of the
// other members that has the most room, or is the least over its share.
func elsewhere(members []planMember, shards []planShard, target, room []int) {
	taken := make([]int, len(members))
	for _, m := range target {
		if m >= 0 {
			taken[m]++
		}
	}
	for i, s := range shards {
		if s.avoid == nil || target[i] != none {
			continue
		}
		best := none
		for m := range members {
			if c := members[m].capacity; !s.avoid[m] && !members[m].drained && (c == 0 || taken[m] < c) && (best == none || room[m] > room[best]) {
				best = m
			}
		}
		if best == none {
			target[i] = later
			continue
		}
		target[i] = best
		taken[best]++
		room[best]--
	}
}

// place gives the shards that have no member yet to members with room: first to a member in the
// shard's zone, then to any. Of several it takes the member with the most room.
func place(members []planMember, shards []planShard, target, room []int) {
	zones := map[string]*rooms{}
	everywhere := &rooms{room: room}
	for i := range members {
		everywhere.members = append(everywhere.members, i)
		if z := members[i].zone; z != "" {
			if zones[z] == nil {
				zones[z] = &rooms{room: room}
			}
			zones[z].members = append(zones[z].members, i)
		}
	}
	for _, inZone := range []bool{true, false} {
		for i, s := range shards {
			if target[i] != none || s.pin != none {
				continue
			}
			from := everywhere
			if inZone {
				if from = zones[s.zone]; from == nil {
					continue
				}
			}
			if m := from.most(); m != none {
				target[i] = m
				room[m]--
			}
		}
	}
}

// rooms finds the member with the most room. Members are few, so it looks at all of them.
type rooms struct {
	members []int
	room    []int
}

func (r *rooms) most() int {
	best := none
	for _, m := range r.members {
		if r.room[m] > 0 && (best == none || r.room[m] > r.room[best]) {
			best = m
		}
	}
	return best
}

// loads returns how many shards each member should have. Pinned shards count first. Then each shard
// goes to the member that has the least for its weight. Among equals it goes to a member that has
// more now than it would get, which keeps the moves few.
func loads(members []planMember, shards []planShard) []int {
	q := &shares{members: members, load: make([]int, len(members)), now: make([]int, len(members))}
	free := 0
	for _, s := range shards {
		switch p := s.pin; {
		case s.avoid != nil && s.waits(len(members)):
		case p == none:
			free++
			if s.owner != none {
				q.now[s.owner]++
			}
		default:
			q.load[p]++
			q.now[p]++
		}
	}
	for i, m := range members {
		if !m.drained && q.fits(i) {
			q.order = append(q.order, i)
		}
	}
	heap.Init(q)
	for ; free > 0 && len(q.order) > 0; free-- {
		i := q.order[0]
		q.load[i]++
		if q.fits(i) {
			heap.Fix(q, 0)
		} else {
			heap.Pop(q)
		}
	}
	return q.load
}

// shares is a heap of the members that may have more, the next to get one first.
type shares struct {
	members   []planMember
	order     []int
	load, now []int // how many shards each member gets, and has now
}

func (q *shares) fits(i int) bool {
	c := q.members[i].capacity
	return c == 0 || q.load[i] < c
}

func (q *shares) Len() int      { return len(q.order) }
func (q *shares) Swap(a, b int) { q.order[a], q.order[b] = q.order[b], q.order[a] }
func (q *shares) Push(x any)    { q.order = append(q.order, x.(int)) }
func (q *shares) Pop() any {
	last := q.order[len(q.order)-1]
	q.order = q.order[:len(q.order)-1]
	return last
}

func (q *shares) Less(a, b int) bool {
	i, j := q.order[a], q.order[b]
	// (load+1)/weight, without a division.
	left, right := (q.load[i]+1)*q.members[j].weight, (q.load[j]+1)*q.members[i].weight
	if left != right {
		return left < right
	}
	if keepsI, keepsJ := q.now[i] > q.load[i], q.now[j] > q.load[j]; keepsI != keepsJ {
		return keepsI
	}
	return cmp.Less(q.members[i].id, q.members[j].id)
}
