package shard

import "slices"

// planMember is a member as the plan sees it: one session that is alive.
type planMember struct {
	id       string // the order of ties
	weight   int    // its share, at least 1
	capacity int    // the most shards that it takes; 0: no limit
	drained  bool   // takes only what is pinned to it
	zone     string
}

// fits reports whether the member has room for one more than n shards.
func (m *planMember) fits(n int) bool { return m.capacity == 0 || n < m.capacity }

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

// best returns one of the members that fit, or none. None of the others that fit is better.
func best(members []planMember, fits func(i int) bool, better func(i, j int) bool) int {
	found := none
	for i := range members {
		if fits(i) && (found == none || better(i, found)) {
			found = i
		}
	}
	return found
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
		m := best(members, func(m int) bool {
			return !s.avoid[m] && !members[m].drained && members[m].fits(taken[m])
		}, func(a, b int) bool { return room[a] > room[b] })
		if m == none {
			target[i] = later
			continue
		}
		target[i] = m
		taken[m]++
		room[m]--
	}
}

// place gives the shards that have no member yet to members with room: first to a member in the
// shard's zone, then to any. Of several it takes the member with the most room.
func place(members []planMember, shards []planShard, target, room []int) {
	for _, inZone := range []bool{true, false} {
		for i, s := range shards {
			if target[i] != none || s.pin != none || inZone && s.zone == "" {
				continue
			}
			m := best(members, func(m int) bool {
				return room[m] > 0 && (!inZone || members[m].zone == s.zone)
			}, func(a, b int) bool { return room[a] > room[b] })
			if m != none {
				target[i] = m
				room[m]--
			}
		}
	}
}

// loads returns how many shards each member should have. Pinned shards count first. Then each shard
// goes to the member that has the least for its weight. Among equals it goes to a member that has
// more now than it would get, which keeps the moves few.
func loads(members []planMember, shards []planShard) []int {
	load, now := make([]int, len(members)), make([]int, len(members))
	free := 0
	for _, s := range shards {
		switch p := s.pin; {
		case s.avoid != nil && s.waits(len(members)):
		case p == none:
			free++
			if s.owner != none {
				now[s.owner]++
			}
		default:
			load[p]++
			now[p]++
		}
	}
	for ; free > 0; free-- {
		m := best(members, func(i int) bool { return !members[i].drained && members[i].fits(load[i]) }, func(i, j int) bool {
			// (load+1)/weight, without a division.
			left, right := (load[i]+1)*members[j].weight, (load[j]+1)*members[i].weight
			if left != right {
				return left < right
			}
			if keepsI, keepsJ := now[i] > load[i], now[j] > load[j]; keepsI != keepsJ {
				return keepsI
			}
			return members[i].id < members[j].id
		})
		if m == none {
			break
		}
		load[m]++
	}
	return load
}
