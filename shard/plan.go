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
	cordoned bool   // takes nothing but what is pinned to it
	zone     string
}

// planShard is a shard as the plan sees it.
type planShard struct {
	owner int    // the member that has it, or none
	pin   int    // the member that it is pinned to, or none
	zone  string // where it is best placed; "" is anywhere
}

const none = -1

// plan returns for each shard the member that should own it, or none. It is a pure
// function: the same input gives the same output, on every machine.
//
// The loads are as even as the weights, the capacities and the pins allow. Of equal
// weights without pins, they differ by one at most between members that are not full.
// Among the plans with such loads this is one with the fewest moves of shards that
// have an owner. Zones decide only which of the shards that must move goes to whom,
// and which of a member's must.
//
// A pin to a member that is full of others is none: the shard would be nobody's.
func plan(members []planMember, shards []planShard) []int {
	shards = heeded(members, shards)
	target := make([]int, len(shards))
	load := loads(members, shards)
	room := slices.Clone(load)
	for i, s := range shards {
		if target[i] = s.pin; s.pin != none {
			room[s.pin]--
		}
	}
	// Each keeps what it has, as far as there is room: first what is in its zone.
	for _, inZone := range []bool{true, false} {
		for i, s := range shards {
			if o := s.owner; target[i] == none && s.pin == none && o != none && room[o] > 0 && inZone == (s.zone != "" && s.zone == members[o].zone) {
				target[i] = o
				room[o]--
			}
		}
	}
	place(members, shards, target, room)
	return target
}

// heeded returns the shards without the pins that their members have no room for: of a
// member's pins those count first of what it has.
func heeded(members []planMember, shards []planShard) []planShard {
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

// place gives the shards that have no member yet to those that have room: first to one
// in the shard's zone, then to the one with the most room.
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

// rooms finds the member with the most room. They are few, and are looked through.
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

// loads returns how many shards each member should have. What is pinned to a member
// is there first; then each shard goes to the member that has the least for its
// weight, and among equals to one that has more now than it would get: that is what
// makes the moves few.
func loads(members []planMember, shards []planShard) []int {
	q := &shares{members: members, load: make([]int, len(members)), now: make([]int, len(members))}
	free := 0
	for _, s := range shards {
		switch p := s.pin; {
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
		if !m.cordoned && q.fits(i) {
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
	load, now []int // what each gets, and has
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
