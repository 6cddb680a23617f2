package shard

import (
	"cmp"
	"crypto/rand"
	"maps"
	"slices"
)

// nextAssignment returns what should replace a, by the facts, or nil if it is to stay,
// and how many shards find no member with room. It is where rules 3 and 4 are kept: a
// shard is given to another only after the fact that frees it, by a greater token.
func nextAssignment(a *assignment, f *facts, cfg *Config) (next *assignment, homeless int) {
	if a == nil {
		a = &assignment{shards: Shards{}}
	}
	n := &transition{facts: f, cfg: cfg, next: a.clone()}
	n.freed()
	n.resize()
	n.seats()
	homeless = n.move()
	n.tidy()
	if n.next.same(a) && !a.restored {
		return nil, homeless
	}
	n.next.version, n.next.id, n.next.restored = a.version+1, rand.Text(), false
	return n.next, homeless
}

// transition makes the next assignment, in steps.
type transition struct {
	facts   *facts
	cfg     *Config
	next    *assignment
	members []planMember
	index   map[int]int // of members, by the index of their session
	session []int       // the other way round
}

// freed takes from each session that has ended, or has let go, what it had.
func (n *transition) freed() {
	for i := range n.next.places {
		p := &n.next.places[i]
		if p.session == none {
			continue
		}
		id := n.next.sessions[p.session].SessionID
		if n.facts.ended(id) || n.facts.letGo(id, n.next.shards.Name(i), p.token) {
			p.session, p.releasing = none, false
		}
	}
}

// resize makes the shards those of the Config. One that is to go stays until nobody has
// it; then its token is remembered.
func (n *transition) resize() {
	a, want := n.next, n.cfg.Shards
	if a.shards.equal(want) {
		return
	}
	set := want
	var held []string
	last := 0 // of the held ones
	for i, p := range a.places {
		if name := a.shards.Name(i); p.session != none && want.index(name) == none {
			held, last = append(held, name), i
		} else if want.index(name) == none {
			a.retired = max(a.retired, p.token)
		}
	}
	switch {
	case len(held) == 0:
	case a.shards.names == nil && want.names == nil: // names would take far more room
		set = Numbered(last + 1)
	default:
		for i := range want.Len() {
			held = append(held, want.Name(i))
		}
		set = Named(held...)
	}
	places := make([]placed, set.Len())
	for i := range places {
		if j := a.shards.index(set.Name(i)); j != none {
			places[i] = a.places[j]
		} else {
			places[i] = placed{session: none, token: a.retired}
		}
	}
	a.shards, a.places = set, places
}

// seats adds the sessions that are alive, and says who is a member.
func (n *transition) seats() {
	for _, k := range slices.Sorted(maps.Keys(n.facts.seats)) {
		s := n.facts.seats[k]
		if s.entry == nil || s.info == nil {
			continue
		}
		id := SessionID{k, s.entry.ElectionNumber}
		if _, ok := n.next.names(id); !ok && n.facts.alive(id) != nil {
			n.next.sessions = append(n.next.sessions, session{SessionID: id, Member: s.info.Member, HostPort: slices.Clone(s.entry.HostPort)})
		}
	}
	n.index = map[int]int{}
	for i, s := range n.next.sessions {
		info := n.facts.alive(s.SessionID)
		if info == nil {
			continue
		}
		n.index[i] = len(n.members)
		n.session = append(n.session, i)
		n.members = append(n.members, planMember{
			id: s.Member + " " + s.String(), weight: info.Weight, capacity: info.Capacity, zone: info.Zone,
			cordoned: slices.Contains(n.next.cordons, s.Member),
		})
	}
}

// member returns the member with a MemberID, or none.
func (n *transition) member(id string) int {
	for k, i := range n.session {
		if n.next.sessions[i].Member == id {
			return k
		}
	}
	return none
}

// move gives what is free to whom the plan names, and asks owners to let go of what
// should be another's. It returns how many shards have no place to go.
func (n *transition) move() (homeless int) {
	a := n.next
	shards := make([]planShard, 0, len(a.places))
	at := make([]int, 0, len(a.places)) // the position of each in a
	for i, p := range a.places {
		name := a.shards.Name(i)
		if n.cfg.Shards.index(name) == none { // on its way out
			if p.session != none {
				a.places[i].releasing = true
			}
			continue
		}
		s := planShard{owner: none, pin: none}
		if p.session != none {
			if k, ok := n.index[p.session]; ok {
				s.owner = k
			}
		}
		if id, ok := a.pins[name]; ok {
			s.pin = n.member(id)
		}
		if n.cfg.ZoneOf != nil {
			s.zone = n.cfg.ZoneOf(name)
		}
		shards, at = append(shards, s), append(at, i)
	}
	target := plan(n.members, shards)
	moving, held := map[int]int{}, map[int]int{} // by session
	for _, p := range a.places {
		if p.releasing {
			moving[p.session]++
		}
		held[p.session]++
	}
	var waiting []int // sessions that have to let go of another shard before
	for k, i := range at {
		p, to := &a.places[i], target[k]
		switch {
		case to == none && p.session == none:
			homeless++
		case p.session == none && n.full(to, held[n.session[to]]):
			waiting = append(waiting, n.session[to])
		case p.session == none:
			held[n.session[to]]++
			*p = placed{n.session[to], p.token + 1, false}
		case to != none && shards[k].owner != none && to != shards[k].owner && !p.releasing && moving[p.session] < n.cfg.MaxMoving:
			p.releasing = true
			moving[p.session]++
		}
	}
	for _, i := range waiting {
		if moving[i] == 0 { // it keeps what nobody else has room for
			homeless++
		}
	}
	return homeless
}

// full reports whether a member that has so many shards, those included that it is asked to let
// go, takes no more.
func (n *transition) full(member, has int) bool {
	c := n.members[member].capacity
	return c > 0 && has >= c
}

// tidy drops sessions that have ended, which own nothing any more, and orders the rest: of each
// seat there is one.
func (n *transition) tidy() {
	a := n.next
	old := a.sessions
	order := make([]int, 0, len(old))
	for i, s := range old {
		if !n.facts.ended(s.SessionID) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(x, y int) int {
		return cmp.Compare(old[x].Seat, old[y].Seat)
	})
	to := map[int]int{none: none}
	a.sessions = make([]session, len(order))
	for k, i := range order {
		a.sessions[k], to[i] = old[i], k
	}
	for i := range a.places {
		a.places[i].session = to[a.places[i].session]
	}
	for name := range a.pins {
		if n.cfg.Shards.index(name) == none && a.shards.index(name) == none {
			delete(a.pins, name)
		}
	}
}

// same reports whether a says what b says.
func (a *assignment) same(b *assignment) bool {
	return a.shards.equal(b.shards) && a.retired == b.retired && slices.Equal(a.places, b.places) &&
		slices.EqualFunc(a.sessions, b.sessions, func(x, y session) bool {
			return x.SessionID == y.SessionID && x.Member == y.Member && slices.Equal(x.HostPort, y.HostPort)
		}) && maps.Equal(a.pins, b.pins) && slices.Equal(a.cordons, b.cordons)
}
