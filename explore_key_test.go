package leaderelection

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// This file says which worlds are the same: those with one key. What a key leaves out can decide nothing any more, and each
// line says why. TestCanonical compares what follows from worlds that have one key. What is canonical:
//
//   - times are relative to now, and no further in the past than any rule looks;
//   - numbers keep their order and distances, up to maxGap; so do extensions of one number;
//   - random ids and versions are named by order of appearance.

const maxGap = 3

// fields are those of the machine that a key knows. TestKeyKnowsAllFields fails if there is another: say in this file what it
// means, and then here.
var fields = map[string]string{
	"lease":     "claims witness writes unsure refused proof at proved highest held lead ended",
	"claims":    "policy mistrust newest base older doubt disputed longest quiet dead", // disputed only tells a driver to read
	"claim":     "of seen proved",
	"witness":   "offset bound",
	"write":     "kind of over old begun view done",
	"lead":      "number view asked confirmed expiry last held",
	"viewEnd":   "wall mono early apart",
	"instant":   "wall mono",
	"policy":    "id term skew hold holdsLate measured checked hostPort params priority",
	"RaceEntry": "LeaderID HostPort ConnectionParams TermExpiry TermLength ElectionNumber Extension Incarnation WriteID Successor Unsynchronized Hold Priority Extra Token Emptied",
}

// item is a part of a key: a value as it is, or a number or extension that is still to be named.
type item struct {
	kind itemKind
	v    uint64
}

type itemKind int8

const (
	plain itemKind = iota
	number
	extension // of the number before it
)

// keyer makes keys.
type keyer struct {
	*world
	items   []item
	out     []byte
	records []*RaceEntry // by name
	ids     []string
	numbers []uint64
	orders  [][2]uint64
	names   []uint64

	oldest time.Duration // how long ago the oldest call began whose answer tells of claims
	far    time.Duration // the furthest that a clock is off
	lives  bool          // see lostLives
}

func (k *keyer) int(v int64) {
	k.items = append(k.items, item{plain, uint64(v)<<1 ^ uint64(v>>63)})
}

func (k *keyer) bits(all ...bool) {
	v := int64(0)
	for i, b := range all {
		if b {
			v |= 1 << i
		}
	}
	k.int(v)
}

// time adds a time that is relative to now, and at least -limit. Parts of a tick are kept: they tell clones apart.
func (k *keyer) time(t, limit time.Duration) {
	if t < -limit {
		t = -limit + t%tick
	}
	if t%tick == 0 {
		k.int(int64(t/tick) * 2)
	} else {
		k.int(int64(t)*2 + 1)
	}
}

func (k *keyer) wall(t time.Time, limit time.Duration) {
	if t.IsZero() { // of an emptied record
		k.int(1)
		return
	}
	k.time(t.Sub(k.world.time()), limit)
}

func (k *keyer) order(r *RaceEntry) {
	k.items = append(k.items, item{number, uint64(r.ElectionNumber)}, item{extension, r.Extension})
}

func (k *keyer) number(n ElectionNumber) { k.items = append(k.items, item{number, uint64(n)}) }

func (k *keyer) id(s string) {
	if s == "" {
		k.int(0)
		return
	}
	j := slices.Index(k.ids, s)
	if j < 0 {
		j = len(k.ids)
		k.ids = append(k.ids, s)
	}
	k.int(int64(j + 1))
}

// marks adds which of the ids that the world shows are in a set.
func (k *keyer) marks(in func(id string) bool) {
	for j, id := range k.ids {
		if in(id) {
			k.int(int64(j + 1))
		}
	}
	k.int(0)
}

// longWait is longer than any wait of a rule.
func (s *scope) longWait() time.Duration {
	p := &s.policy
	return max(2*p.term, p.term+3*p.skew, p.term+drift(p.term, p.skew)) + 2*p.hold + tick
}

// floor is how long ago a term has ended that is over by all clocks, at all looks that are still to be compared with it.
func (k *keyer) floor() time.Duration { return k.policy.hold + k.policy.skew + k.far + k.oldest }

func (s *scope) furthest() (far time.Duration) {
	for _, all := range [][]int8{s.offs, s.wrong, s.storeOffs} {
		for _, o := range all {
			far = max(far, ticks(o).Abs())
		}
	}
	return far
}

// kept reports whether r is kept for somebody. Else its TermExpiry says nothing, nor since when it is known.
func kept(r *RaceEntry) bool {
	return !r.Vacant() || r.Emptied || r.Hold != 0 || r.Successor != "" && r.Successor != AnySuccessor
}

func (k *keyer) record(r *RaceEntry) {
	if r == nil {
		k.int(0)
		return
	}
	if j := slices.Index(k.records, r); j >= 0 {
		k.int(int64(j + 1))
		return
	}
	k.records = append(k.records, r)
	k.int(int64(len(k.records)))
	k.order(r)
	k.id(r.Incarnation)
	k.id(r.WriteID)
	k.bits(r.Vacant(), r.Emptied, r.Unsynchronized, r.Successor != "", r.Successor == AnySuccessor,
		k.lives && slices.Contains(k.lost[0], r), k.lives && slices.Contains(k.lost[1], r))
	if r.Successor != "" && r.Successor != AnySuccessor {
		k.int(int64(slices.Index(hostNames, r.Successor)))
	}
	if kept(r) {
		k.wall(r.TermExpiry, k.floor())
		k.int(int64(r.Hold))
	}
	v, _ := r.Token.(*stored)
	if v == nil {
		return
	}
	by := -1 // a crashed process: nobody's
	for i, h := range k.hosts {
		if h.process == v.by {
			by = i
		}
	}
	k.int(int64(by))
	if k.stamps { // see witness.observe: low stays as it is, high grows
		k.wall(v.at, k.longWait()+2*k.far)
		k.int(int64(v.low))
	}
}

// claim adds a claim of host i.
func (k *keyer) claim(i int, c claim) {
	if k.record(c.of); c.of == nil {
		return
	}
	limit := k.longWait() + k.oldest
	seen := c.seen - k.at(i).mono
	if !kept(c.of) || k.overForGood(i, c) {
		seen = -limit
	}
	k.time(seen, limit)
}

// overForGood reports whether wall clocks alone are compared, none is ever set, and host i's shows that the claim is over.
func (k *keyer) overForGood(i int, c claim) bool {
	simple := !k.sets && k.jumps == 0 && !k.policy.measured && !k.mixed && !k.stamps && !k.bounds && k.clones == 0
	e, at := k.hosts[i].l.claims.end(c), k.at(i)
	at.wall = at.wall.Add(-k.oldest)
	return simple && !c.of.Vacant() && !c.of.Unsynchronized && (e == free || e.byWall(at))
}

// view adds a view of host i, if it is not over for good.
func (k *keyer) view(i int, v *viewEnd) {
	at := k.at(i)
	if v.mono <= at.mono {
		k.int(-1)
		return
	}
	k.int(int64(v.mono - at.mono))
	k.wall(v.wall, 2*k.far)
	if v.apart != 0 {
		k.int(int64(v.early))
		k.int(int64(v.apart))
	}
}

// sign adds what is known of the set-backs that count.
func (k *keyer) sign(n int8) {
	if k.lives {
		k.int(int64(n))
	}
}

// written adds what a write has written. Whatever compares it compares it with a record.
func (k *keyer) written(i int, r *RaceEntry) {
	k.order(r)
	k.id(r.WriteID)
	k.id(r.Incarnation)
	k.wall(r.TermExpiry, k.floor())
	k.bits(r.Unsynchronized, k.lives && k.gone(0, r.WriteID), k.lives && k.gone(1, r.WriteID))
	k.sign(k.hosts[i].signedBy(r.Incarnation))
}

// shows reports whether a record in the world is what w wrote, or a clone may still draw the same.
func (k *keyer) shows(w *write) bool {
	if slices.ContainsFunc(k.records, w.led) {
		return true
	}
	for _, h := range k.hosts {
		for j := range h.calls {
			if c := &h.calls[j]; c.put != nil && !k.over(c) && w.led(c.put) {
				return true
			}
		}
		if slices.Contains(randomIDs[:h.draws], w.of.WriteID) {
			return true
		}
	}
	return false
}

// write adds a write of host i, or nothing if it decides nothing any more.
func (k *keyer) write(i, n int) {
	h := k.hosts[i]
	w, l, age := &h.l.writes[n], h.l, k.at(i).mono-h.l.writes[n].begun.mono
	shown := k.shows(w)
	// It may make this candidate read before it leaves, or begin a quiet.
	holds := age < l.term && (k.leaves || k.asks > 0 || k.stamps || k.bounds) || k.bounds && age < k.longWait()
	// It is counted by the next extension of the same leadership.
	counts := w.of.Extension > greatest(w.of.ElectionNumber, l.newest.of, l.base.of) &&
		(l.lead != nil && l.lead.number == w.of.ElectionNumber || slices.ContainsFunc(k.records, func(r *RaceEntry) bool { return r.ElectionNumber == w.of.ElectionNumber })) &&
		!slices.ContainsFunc(l.writes[n+1:], func(o write) bool {
			return o.of.ElectionNumber == w.of.ElectionNumber && o.of.Extension > w.of.Extension
		})
	if !shown && !holds && !counts {
		return
	}
	k.bits(shown, holds, counts, true)
	k.time(-age, 2*l.term+tick) // then issue forgets it
	if shown {
		k.written(i, w.of)
	} else {
		k.order(w.of)
	}
	if !shown && !holds {
		return
	}
	k.bits(w.done, w.old && !w.done, w.kind == OpAcquire && (!w.done || k.bounds), w.robs() && (!w.done || k.bounds))
	if holds {
		k.order(w.over)
	}
	if !w.done {
		k.view(i, &w.view)
	}
}

// greatest returns the greatest extension of that number.
func greatest(n ElectionNumber, all ...*RaceEntry) (e uint64) {
	for _, r := range all {
		if r != nil && r.ElectionNumber == n {
			e = max(e, r.Extension)
		}
	}
	return e
}

// host adds host i, but for its writes: all records come first.
func (k *keyer) host(i int) {
	h, l, at := k.hosts[i], k.hosts[i].l, k.at(i)
	leads := k.leads(i)
	k.bits(h.asleep, h.leaves, h.work, h.drained && leads, l.mistrust, l.offset != 0, l.bound != 0, l.unsure, l.proof, l.claims.doubt, l.newest.proved, leads)
	k.bits(l.base.of == l.newest.of)
	k.int(int64(h.off))
	k.sign(h.sign)
	k.int(int64(max(h.slipped-k.ticks, 0)))
	k.int(int64(h.draws))
	k.number(h.seen)
	k.number(l.highest)
	k.int(int64(l.longest))
	k.time(l.quiet-at.mono, k.oldest)
	if k.policy.hold > 0 {
		k.time(l.held-at.mono, k.longWait())
	}
	k.claim(i, l.newest)
	k.claim(i, l.base)
	k.int(int64(len(l.older)))
	for _, c := range l.older {
		k.claim(i, c)
	}
	k.record(l.proved)
	k.int(int64(len(h.calls)))
	for j := range h.calls {
		k.call(i, &h.calls[j])
	}
	// Only what at shows is asked for: whether a claim was over. If that is open, it will be set anew.
	switch {
	case l.unsure || l.base.of == nil:
		k.int(0)
	case k.bounds:
		k.time(l.at.mono-at.mono, 2*k.longWait())
		k.wall(l.at.wall, 2*k.longWait()+k.far)
	default:
		k.bits(true, l.at.mono < l.quiet, l.claims.end(l.newest).reached(l.at), l.claims.end(l.base).reached(l.at))
	}
}

// over reports whether the store has executed a call, or can only refuse it: a version never comes again.
func (k *keyer) over(c *apiCall) bool {
	return c.done || c.kind != OpRead && c.over != k.store && !k.same && k.pushes < 3
}

// call adds a call of host i.
func (k *keyer) call(i int, c *apiCall) {
	done := k.over(c)
	k.bits(c.kind == OpRead, c.kind == OpRelease, c.lost, done, c.ok, c.done)
	if c.ok || k.current && c.done {
		k.record(c.got)
	}
	if !c.ok && c.kind != OpRead {
		k.record(c.over)
	}
	if c.put != nil && !done {
		k.order(c.put)
		k.id(c.put.Incarnation)
		k.id(c.put.WriteID)
		k.wall(c.put.TermExpiry, k.floor())
		k.bits(c.put.Unsynchronized, c.put.Successor != "")
		k.int(int64(c.put.Hold))
	}
	if c.kind == OpRead || k.current || c.ok || !done {
		k.time(c.begun.mono-k.at(i).mono, k.longWait())
		if k.sets || k.jumps > 0 || k.suspends {
			k.wall(c.begun.wall, k.longWait()+k.far)
		}
	}
}

// lead adds the lead of host i.
func (k *keyer) lead(i int) {
	d := k.hosts[i].l.lead
	k.number(d.number)
	k.bits(d.asked != "")
	k.written(i, d.confirmed.of)
	k.time(d.confirmed.begun.mono-k.at(i).mono, tick) // then the next extension is due
	k.view(i, &d.view)
	k.view(i, &d.last)
	k.wall(d.expiry, k.longWait()+k.far)
	if k.policy.hold > 0 {
		k.time(d.held-k.at(i).mono, k.longWait())
	}
}

// key names a world.
func (k *keyer) key(w *world) []byte {
	*k = keyer{world: w, items: k.items[:0], out: k.out[:0], records: k.records[:0], ids: k.ids[:0], numbers: k.numbers[:0], orders: k.orders[:0], names: k.names[:0], far: w.furthest()}
	for i, h := range w.hosts {
		for _, c := range h.calls {
			if c.kind == OpRead || w.current {
				k.oldest = max(k.oldest, min(w.at(i).mono-c.begun.mono, k.longWait()))
			}
		}
	}
	k.lives = k.lostLives() || w.backsLeft > 0
	for _, n := range []int8{w.storeOff, w.asksLeft, w.crashesLeft, w.backsLeft, w.jumpsLeft} {
		k.int(int64(n))
	}
	k.number(w.top)
	k.record(w.store)
	for _, r := range w.past {
		k.record(r)
	}
	for i := range w.hosts {
		k.host(i)
	}
	for i, h := range w.hosts {
		if w.leads(i) {
			k.lead(i)
		}
		for n := range h.l.writes {
			k.write(i, n)
		}
		k.int(-1)
		refused := -1
		if h.l.refused != nil { // else no record will ever be of that version
			refused = slices.Index(k.records, h.l.refused)
		}
		k.int(int64(refused))
	}
	if w.proofs {
		k.marks(func(id string) bool { return slices.Contains(w.died, id) })
		for _, h := range w.hosts {
			k.marks(func(id string) bool { return h.l.dead[id] })
		}
	}
	return k.finish()
}

// lostLives reports whether a view is true, or may begin, by what a set-back has lost. Else it does not count who knows of that.
func (k *keyer) lostLives() bool {
	lost := func(r *RaceEntry) bool { return k.gone(0, r.WriteID) || k.gone(1, r.WriteID) }
	for i, h := range k.hosts {
		if k.leads(i) && lost(h.l.lead.confirmed.of) || slices.ContainsFunc(h.calls, func(c apiCall) bool { return (c.ok || k.current && c.done) && lost(c.got) }) {
			return true
		}
	}
	return false
}

// finish names the numbers and extensions.
func (k *keyer) finish() []byte {
	last := uint64(0)
	for _, it := range k.items {
		switch it.kind {
		case number:
			last = it.v
			k.numbers = append(k.numbers, last)
		case extension:
			k.orders = append(k.orders, [2]uint64{last, it.v})
		}
	}
	slices.Sort(k.numbers)
	k.numbers = slices.Compact(k.numbers)
	compare := func(a, b [2]uint64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
	slices.SortFunc(k.orders, compare)
	k.orders = slices.Compact(k.orders)
	// After the names of the numbers come those of the orders. How far the first number is from none says nothing; nor the first
	// extension of a number, unless an acquisition may come with a number that is taken.
	was, name := uint64(0), uint64(0)
	for _, n := range k.numbers {
		if name == 0 && n > 0 {
			name++
		} else {
			name += min(n-was, maxGap)
		}
		k.names, was = append(k.names, name), n
	}
	taken := k.clones > 0 || k.backs > 0 || k.pushes > 2
	group := uint64(math.MaxUint64)
	for _, o := range k.orders {
		if o[0] != group {
			if group, was, name = o[0], 0, 0; !taken {
				was = o[1]
			}
		}
		name += min(o[1]-was, maxGap)
		k.names, was = append(k.names, name), o[1]
	}
	for _, it := range k.items {
		v := it.v
		switch it.kind {
		case number:
			last = v
			j, _ := slices.BinarySearch(k.numbers, v)
			v = k.names[j]
		case extension:
			j, _ := slices.BinarySearchFunc(k.orders, [2]uint64{last, v}, compare)
			v = k.names[len(k.numbers)+j]
		}
		k.out = binary.AppendUvarint(k.out, v)
	}
	return k.out
}
