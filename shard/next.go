package shard

import (
	"cmp"
	"crypto/rand"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// decision is what the facts call for.
type decision struct {
	next     *assignment   // the new assignment, or nil if there is nothing to change
	homeless int           // how many shards find no member with room
	failing  int           // how many shards wait until some member may try them again
	wait     time.Duration // after that time the same facts may call for more
}

// decide makes the next assignment from the facts. It keeps rules 3, 4 and 13: a shard is given to
// another session only after the fact that frees it, by a greater token. A shard of another
// numbering is given out only when all shards are free.
func decide(a *assignment, f *facts, cfg *Config, now time.Time) decision {
	born := max(now.Unix(), 1)
	if a == nil {
		// Nothing is known of a record that was deleted, so numbers begin with the time.
		a = &assignment{retired: uint64(born)}
	}
	n := &transition{facts: f, cfg: cfg, now: now, next: a.clone(), d: decision{wait: math.MaxInt64}}
	n.freed()
	n.seats()
	n.resize()
	n.members()
	n.move()
	n.tidy()
	if n.next.same(a) && !a.restored {
		return n.d
	}
	n.next.version, n.next.id, n.next.restored = max(a.version+1, leaderelection.ElectionNumber(born)), rand.Text(), false
	n.d.next = n.next
	return n.d
}

// transition makes the next assignment, in steps.
type transition struct {
	facts    *facts
	cfg      *Config
	now      time.Time
	next     *assignment
	want     Shards         // the shards to divide
	renumber bool           // all old shards must be let go before that
	heirs    map[int]string // for shards that a member has let go by leaving: its MemberID
	plan     []planMember
	index    map[int]int // of members, by the index of their session
	session  []int       // the other way round
	d        decision
}

// freed frees the shards of sessions that have ended, and the shards that were let go.
func (n *transition) freed() {
	n.heirs = map[int]string{}
	for i := range n.next.places {
		p := &n.next.places[i]
		if p.session == none {
			continue
		}
		s := &n.next.sessions[p.session]
		name := n.next.shards.Name(i)
		switch {
		case n.facts.ended(s.SessionID):
			n.heirs[i] = s.Member
		case n.facts.letGo(s.SessionID, name, p.token):
			if info := n.facts.seats[s.Seat].info; info.Failed[name] != "" {
				n.failed(name, s.Member, info.Failed[name])
			} else if info.Leaving {
				n.heirs[i] = s.Member
			}
		default:
			continue
		}
		p.session, p.releasing = none, false
	}
}

// failed notes that a member could not work on a shard.
func (n *transition) failed(shard, member, why string) {
	f := failure{Member: member}
	var list []failure
	for _, other := range n.next.failures[shard] {
		if other.Member == member {
			f = other
		} else {
			list = append(list, other)
		}
	}
	f.Count, f.Err = f.Count+1, why
	f.Until = n.now.Add(n.cfg.TermLength << min(f.Count-1, maxBackOff)).UTC().Truncate(time.Second)
	if n.next.failures == nil {
		n.next.failures = map[string][]failure{}
	}
	n.next.failures[shard] = append(list, f)
}

const (
	maxBackOff = 6         // a shard is tried again after 64 terms at the latest
	forget     = time.Hour // after that time without a failure, the next counts as the first
)

// wanted returns the shards that the group should divide: those of the Config. If members know
// different numberings, it is the numbering that most of them know.
func (n *transition) wanted() Shards {
	have, own := n.next.shards, n.cfg.Shards
	best := own.numbered
	if have.Len() > 0 {
		best = have.numbered
	}
	know := map[int]int{}
	for k := range n.facts.seats {
		if _, info := n.facts.holder(k); info != nil && !info.Leaving {
			know[info.Numbered] += info.Weight
		}
	}
	for _, of := range slices.Sorted(maps.Keys(know)) {
		if know[of] > know[best] {
			best = of
		}
	}
	switch {
	case best == own.numbered:
		return own
	case best > 0:
		return Numbered(best)
	}
	return have // names, which only members that have them can tell
}

// resize changes the shards to those that are wanted. A shard that must go stays until nobody has
// it, and then its token is remembered. If the numbering changes, all old shards must go first,
// since a key of any old shard may belong to any new one. The tokens of the new shards are greater
// than those of all old shards, since a fence may be for a key.
func (n *transition) resize() {
	a := n.next
	n.want = n.wanted()
	if a.shards.equal(n.want) {
		return
	}
	if a.shards.Len() > 0 && a.shards.numbered != n.want.numbered {
		for _, p := range a.places {
			n.renumber = n.renumber || p.session != none
			a.retired = max(a.retired, p.token)
		}
		if n.renumber {
			return
		}
		a.shards, a.places, a.failures = Shards{}, nil, nil
		clear(n.heirs)
	}
	var held []string
	for i, p := range a.places {
		if name := a.shards.Name(i); n.want.index(name) == none {
			if p.session != none {
				held = append(held, name)
			} else {
				a.retired = max(a.retired, p.token)
			}
		}
	}
	set := n.want
	if len(held) > 0 {
		for i := range n.want.Len() {
			held = append(held, n.want.Name(i))
		}
		set = Named(held...)
	}
	places, heirs := make([]placed, set.Len()), map[int]string{}
	for i := range places {
		if j := a.shards.index(set.Name(i)); j != none {
			places[i] = a.places[j]
			if heir, ok := n.heirs[j]; ok {
				heirs[i] = heir
			}
		} else {
			places[i] = placed{session: none, token: a.retired}
		}
	}
	a.shards, a.places, n.heirs = Shards{numbered: set.numbered, names: set.names}, places, heirs
}

// seats adds the sessions that are alive.
func (n *transition) seats() {
	for _, k := range slices.Sorted(maps.Keys(n.facts.seats)) {
		id, info := n.facts.holder(k)
		if _, ok := n.next.names(id); !ok && info != nil {
			n.next.sessions = append(n.next.sessions, session{SessionID: id, Member: info.Member, HostPort: slices.Clone(n.facts.seats[k].entry.HostPort)})
		}
	}
}

// members finds the sessions that take shards: those that are alive, do not leave, and know the
// numbering. Of two sessions with one MemberID it leaves out the newer one, as long as the other
// may be from before a restart.
func (n *transition) members() {
	n.index = map[int]int{}
	for i, s := range n.next.sessions {
		info := n.facts.alive(s.SessionID)
		if info == nil || info.Leaving || info.Numbered != n.next.shards.numbered || n.facts.succeeds(s.SessionID) {
			continue
		}
		n.index[i] = len(n.plan)
		n.session = append(n.session, i)
		n.plan = append(n.plan, planMember{
			id: s.Member + " " + s.String(), weight: info.Weight, capacity: info.Capacity, zone: info.Zone,
			drained: slices.Contains(n.next.drained, s.Member),
		})
	}
}

// member returns the index of the member with a MemberID, or none.
func (n *transition) member(id string) int {
	for k, i := range n.session {
		if n.next.sessions[i].Member == id {
			return k
		}
	}
	return none
}

// avoid returns the members that must not try a shard now.
func (n *transition) avoid(shard string) map[int]bool {
	var avoid map[int]bool
	for _, f := range n.next.failures[shard] {
		if wait := f.Until.Sub(n.now); wait > 0 {
			n.d.wait = min(n.d.wait, wait)
			for k, i := range n.session {
				if n.next.sessions[i].Member == f.Member {
					if avoid == nil {
						avoid = map[int]bool{}
					}
					avoid[k] = true
				}
			}
		}
	}
	return avoid
}

// move gives free shards to the members that the plan names. It asks owners to let go of shards
// that others should have.
func (n *transition) move() {
	a := n.next
	shards := make([]planShard, 0, len(a.places))
	at := make([]int, 0, len(a.places)) // the position of each in a
	for i, p := range a.places {
		name := a.shards.Name(i)
		if n.renumber || n.want.index(name) == none { // on its way out
			if p.session != none {
				a.places[i].releasing = true
			}
			continue
		}
		s := planShard{owner: none, pin: none, avoid: n.avoid(name)}
		if p.session != none {
			if k, ok := n.index[p.session]; ok {
				s.owner = k
			}
		} else if heir, ok := n.heirs[i]; ok {
			s.owner = n.member(heir)
		}
		if id, ok := a.pins[name]; ok {
			s.pin = n.member(id)
		}
		if n.cfg.ZoneOf != nil {
			s.zone = n.cfg.ZoneOf(name)
		}
		shards, at = append(shards, s), append(at, i)
	}
	target := plan(n.plan, shards)
	moving, held := map[int]int{}, map[int]int{} // by session
	for _, p := range a.places {
		if p.releasing {
			moving[p.session]++
		}
		held[p.session]++
	}
	var waiting []int // sessions that must first let go of another shard
	for k, i := range at {
		p, to := &a.places[i], target[k]
		switch {
		case to == later && p.session == none:
			n.d.failing++
		case to == none && p.session == none:
			n.d.homeless++
		case p.session == none && n.full(to, held[n.session[to]]):
			waiting = append(waiting, n.session[to])
		case p.session == none:
			held[n.session[to]]++
			*p = placed{n.session[to], p.token + 1, false}
		case to >= 0 && shards[k].owner != none && to != shards[k].owner && !p.releasing && moving[p.session] < n.cfg.MaxMoving:
			p.releasing = true
			moving[p.session]++
		}
	}
	for _, i := range waiting {
		if moving[i] == 0 { // it keeps shards for which nobody else has room
			n.d.homeless++
		}
	}
}

// full reports whether a member takes no more shards. Has is how many it has, including those that
// it has been asked to let go.
func (n *transition) full(member, has int) bool {
	c := n.plan[member].capacity
	return c > 0 && has >= c
}

// tidy drops the sessions that have ended, which own nothing any more. It orders the rest by their
// seats, of which each has one session.
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
		if n.want.index(name) == none && a.shards.index(name) == none {
			delete(a.pins, name)
		}
	}
	for name, list := range a.failures {
		list = slices.DeleteFunc(slices.Clone(list), func(f failure) bool { return n.now.Sub(f.Until) > forget })
		if a.failures[name] = list; len(list) == 0 || a.shards.index(name) == none || len(a.failures) > maxFailures {
			delete(a.failures, name)
		}
	}
}

// same reports whether a and b have the same content.
func (a *assignment) same(b *assignment) bool {
	return a.shards.equal(b.shards) && a.retired == b.retired && slices.Equal(a.places, b.places) &&
		slices.EqualFunc(a.sessions, b.sessions, func(x, y session) bool {
			return x.SessionID == y.SessionID && x.Member == y.Member && slices.Equal(x.HostPort, y.HostPort)
		}) && maps.Equal(a.pins, b.pins) && slices.Equal(a.drained, b.drained) &&
		maps.EqualFunc(a.failures, b.failures, func(x, y []failure) bool { return slices.EqualFunc(x, y, sameFailure) })
}

func sameFailure(a, b failure) bool {
	return a.Member == b.Member && a.Count == b.Count && a.Until.Equal(b.Until) && a.Err == b.Err
}
