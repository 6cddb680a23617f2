//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// desk is what a coordinator goes by: facts, and the newest assignment.
type desk struct {
	t        *testing.T
	facts    *facts
	cfg      Config
	a        *assignment
	homeless int
}

func newDesk(t *testing.T, shards int) *desk {
	return &desk{t: t, facts: newFacts(), cfg: Config{Shards: Numbered(shards), MaxMoving: 100, TermLength: T}, a: &assignment{id: "none"}}
}

// heldDesk is a desk on which session 1 on seat 0 has all shards, by token 1.
func heldDesk(t *testing.T, shards Shards) *desk {
	d := newDesk(t, 0)
	d.cfg.Shards = shards
	d.sits(0, 1, 0, nil)
	d.next()
	return d
}

// sits puts a record of a session on a seat, of a member without a capacity.
func (d *desk) sits(k int, number leaderelection.ElectionNumber, extension uint64, letGo map[string]uint64) {
	d.t.Helper()
	d.sitsWith(k, number, 0, extension, letGo)
}

func (d *desk) sitsWith(k int, number leaderelection.ElectionNumber, capacity int, extension uint64, letGo map[string]uint64) {
	d.t.Helper()
	info := (&Member{cfg: Config{MemberID: string(rune('a' + k)), Weight: 1, Capacity: capacity, Shards: d.cfg.Shards}}).info()
	info.LetGo = letGo
	text := must(json.Marshal(info))(d.t)
	d.learn(k, &leaderelection.RaceEntry{LeaderID: info.Member, ElectionNumber: number, Extension: extension, ConnectionParams: text}, false)
}

func (d *desk) vacant(k int, number leaderelection.ElectionNumber) {
	d.learn(k, &leaderelection.RaceEntry{ElectionNumber: number, Extension: 1000}, false)
}

func (d *desk) lapses(k int) { d.learn(k, d.facts.seats[k].entry, true) }

func (d *desk) learn(k int, e *leaderelection.RaceEntry, lapsed bool) {
	if d.facts.seats[k] == nil {
		d.facts.seats[k] = newSeat()
	}
	d.facts.seats[k].learn(e, lapsed)
}

// next makes the next assignment, and returns whether there was need for one.
func (d *desk) next() bool {
	d.t.Helper()
	decision := decide(d.a, d.facts, &d.cfg, time.Now())
	next := decision.next
	if d.homeless = decision.homeless; next == nil {
		return false
	}
	if d.a != nil && (next.version <= d.a.version || next.id == d.a.id) {
		d.t.Fatalf("version %d %q follows %d %q", next.version, next.id, d.a.version, d.a.id)
	}
	if err := next.check(); err != nil {
		d.t.Fatal(err)
	}
	d.a = next
	return true
}

// owner is the seat that has shard i, or none.
func (d *desk) owner(i int) int {
	if p := d.a.places[i]; p.session != none {
		return d.a.sessions[p.session].Seat
	}
	return none
}

func (d *desk) count(k int) (n int) {
	for i := range d.a.places {
		if d.owner(i) == k {
			n++
		}
	}
	return n
}

// asked are the shards that their owner is to let go.
func (d *desk) asked() (names []string) {
	for i, p := range d.a.places {
		if p.releasing {
			names = append(names, d.a.shards.Name(i))
		}
	}
	return names
}

// Rule 3: a shard of a session that seems to be over stays with it until it is on record
// that the session has ended.
func TestRule03MovesOnlyWhenFreed(t *testing.T) {
	d := heldDesk(t, Numbered(1))
	d.sits(1, 1, 0, nil)
	d.lapses(0)
	d.next()
	if d.owner(0) != 0 || d.a.places[0].token != 1 {
		t.Fatalf("a lapsed session's shard: %+v of %+v", d.a.places, d.a.sessions)
	}
	d.vacant(0, 1)
	d.next()
	if d.owner(0) != 1 || d.a.places[0].token != 2 {
		t.Fatalf("a session that has ended keeps its shard: %+v of %+v", d.a.places, d.a.sessions)
	}
	if _, named := d.a.names(SessionID{0, 1}); named {
		t.Error("a session that has ended and owns nothing is named still")
	}
	d.sits(1, 2, 0, nil) // the same member, anew
	d.next()
	if s := d.a.sessions[d.a.places[0].session]; s.Number != 2 || d.a.places[0].token != 3 {
		t.Errorf("under a new session: %+v of %+v", d.a.places[0], s)
	}
}

// Rule 3: an owner that is asked to let go keeps the shard until its seat names that very
// token.
func TestRule03LetGoOfThatVeryToken(t *testing.T) {
	d := heldDesk(t, Numbered(2))
	d.sits(1, 1, 0, nil)
	d.next()
	if d.owner(0) != 0 || d.owner(1) != 0 || !d.a.places[1].releasing || d.a.places[0].releasing {
		t.Fatalf("asked: %+v", d.a.places)
	}
	d.sits(0, 1, 1, map[string]uint64{"0": 1})
	d.a.places[1].token = 7 // as if it had been owned more often
	d.sits(0, 1, 2, map[string]uint64{"1": 6})
	if d.next() && d.owner(1) != 0 {
		t.Fatal("moved by an older token that was let go")
	}
	d.sits(0, 1, 3, map[string]uint64{"1": 7})
	d.next()
	if d.owner(1) != 1 || d.a.places[1].token != 8 || d.owner(0) != 0 {
		t.Fatalf("let go: %+v", d.a.places)
	}
	if d.next() {
		t.Error("one more assignment, of nothing new")
	}
}

// What was asked for and is freed with nobody to have it is not asked for any more.
func TestRule03FreedOfNobody(t *testing.T) {
	d := heldDesk(t, Numbered(4))
	d.sits(1, 1, 0, nil)
	d.next() // two of them are asked for
	d.vacant(0, 1)
	d.vacant(1, 1)
	d.next()
	for i, p := range d.a.places {
		if p.session != none || p.releasing || p.token != 1 {
			t.Errorf("shard %d: %+v", i, p)
		}
	}
}

// Rule 4: a shard's token is never used again, also when the shard was gone: it begins again
// after the greatest token of all that are gone.
func TestRule04TokensGrow(t *testing.T) {
	d := heldDesk(t, Named("a", "b", "c", "d"))
	d.a.places[2].token, d.a.places[3].token = 9, 5
	d.cfg.Shards = Named("a", "b")
	d.next()
	if !d.a.places[3].releasing || len(d.a.places) != 4 {
		t.Fatalf("a shard that is to go, and is owned: %+v", d.a.places)
	}
	d.sits(0, 1, 1, map[string]uint64{"c": 9})
	d.next()
	d.sits(0, 1, 2, map[string]uint64{"d": 5})
	d.next()
	if len(d.a.places) != 2 || d.a.retired != 9 {
		t.Fatalf("gone: %+v, token %d remembered", d.a.places, d.a.retired)
	}
	d.cfg.Shards = Named("a", "b", "d", "new")
	d.next()
	for i, p := range d.a.places {
		if name := d.a.shards.Name(i); (name == "d" || name == "new") != (p.token == 10) {
			t.Errorf("shard %s has token %d, after 9 of one that is gone", name, p.token)
		}
	}
}

// Rule 4: where the record was deleted or made anew, tokens and versions begin with the time.
func TestRule04BornWithTheTime(t *testing.T) {
	d := newDesk(t, 2)
	d.a = nil
	d.sits(0, 1, 0, nil)
	before := uint64(time.Now().Unix())
	d.next()
	for i, p := range d.a.places {
		if p.token <= before || p.token > before+10 {
			t.Errorf("shard %d begins with token %d at %d", i, p.token, before)
		}
	}
	if v := uint64(d.a.version); v < before || v > before+10 {
		t.Errorf("version %d at %d", v, before)
	}
	d.a.version = 7 // of a backup
	d.sits(1, 1, 0, nil)
	if d.next(); uint64(d.a.version) < before {
		t.Errorf("version %d follows 7 at %d: who knows a newer one does not heed it", d.a.version, before)
	}
}

// Rule 12: what the store has lost is written again, with a greater version, though nothing
// in it is to change; and what is newest is never what is older.
func TestRule12WhatWasLostIsWrittenAgain(t *testing.T) {
	d := heldDesk(t, Numbered(2))
	known := d.a
	if d.next() {
		t.Fatalf("there is need for %+v", d.a)
	}
	for name, read := range map[string]*assignment{"nothing": nil, "an older one": {version: known.version - 1, id: "x", shards: known.shards, places: []placed{{none, 1, false}, {none, 8, false}}}} {
		token := memory.NewDecider().Entry().Token
		n := newest(read, known, token)
		if !n.restored || n.token != token || n.version != known.version || known.restored {
			t.Errorf("%s read: %+v", name, n)
			continue
		}
		next := decide(n, d.facts, &d.cfg, time.Now()).next
		if next == nil || next.version <= known.version || next.restored || next.token != token {
			t.Errorf("%s read: next is %+v", name, next)
		}
	}
	same := known.clone()
	if newest(same, known, nil) != same || newest(same, nil, nil) != same {
		t.Error("what was read is as new, and is not what counts")
	}
}

// Rule 13: nothing of a numbering is given out before all of the one before is let go, and then
// by greater tokens than any of it.
func TestRule13NumberingsDoNotMix(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.sits(1, 1, 0, nil)
	d.next()
	d.a.places[1].token = 9
	d.cfg.Shards = Numbered(3)
	d.sits(0, 1, 1, nil) // as if both had come again
	d.sits(1, 1, 1, nil)
	d.next()
	if d.a.Len() != 2 || !d.a.places[0].releasing || !d.a.places[1].releasing {
		t.Fatalf("of the old numbering: %+v", d.a.places)
	}
	d.sits(d.owner(0), 1, 2, map[string]uint64{"0": 1})
	d.next()
	if d.a.Len() != 2 || d.owner(0) != none || d.owner(1) == none {
		t.Fatalf("while one is not let go: %+v", d.a.places)
	}
	d.vacant(d.owner(1), 1)
	d.next()
	if d.a.Len() != 3 {
		t.Fatalf("when all are let go: %+v", d.a.places)
	}
	for i, p := range d.a.places {
		if p.session == none || p.token != 10 {
			t.Errorf("shard %d: %+v, want token 10, after 9 of another that may have had its keys", i, p)
		}
	}
}

func (a *assignment) Len() int { return a.shards.Len() }

// MaxMoving of a member's shards are on the move at a time, from the first to the last.
func TestMaxMovingAtATime(t *testing.T) {
	d := heldDesk(t, Numbered(12))
	d.cfg.MaxMoving = 2
	d.sits(1, 1, 0, nil)
	letGo := map[string]uint64{}
	for n := range 4 {
		d.next()
		if len(d.asked()) != 2 {
			t.Fatalf("after %d are let go: asked for %v", n, d.asked())
		}
		letGo[d.asked()[0]] = 1
		d.sits(0, 1, uint64(n+1), maps.Clone(letGo))
	}
	for d.next() { // what is left
		for _, name := range d.asked() {
			letGo[name] = 1
		}
		d.sits(0, 1, 10+uint64(len(letGo)), maps.Clone(letGo))
	}
	of := map[int]int{}
	for i := range 12 {
		of[d.owner(i)]++
	}
	if of[0] != 6 || of[1] != 6 {
		t.Errorf("in the end: %v", of)
	}
}

// A session that seems to be over is asked for nothing: its shards are free when it has ended. If it
// owns nothing, no new assignment names it.
func TestTheLapsedAreLeftAlone(t *testing.T) {
	for lapsed := range 2 {
		d := heldDesk(t, Numbered(4))
		d.sits(1, 1, 0, nil)
		d.lapses(lapsed)
		if next := d.next(); next != (lapsed == 0) || len(d.asked()) > 0 {
			t.Errorf("seat %d: asked for %v; named are %+v", lapsed, d.asked(), d.a.sessions)
		}
	}
}

// A member is never given more than its Capacity, also while it is asked to let go of something
// for the sake of a pin.
func TestCapacityWhileShardsMove(t *testing.T) {
	d := newDesk(t, 3)
	d.sitsWith(0, 1, 2, 0, nil)
	d.sitsWith(1, 1, 0, 0, nil)
	d.next()
	if d.count(0) != 2 || d.owner(2) != 1 {
		t.Fatalf("places: %+v", d.a.places)
	}
	d.a.pins = map[string]string{"2": "a"}
	d.next()
	d.sitsWith(1, 1, 0, 1, map[string]uint64{"2": 1})
	if d.next(); d.count(0) > 2 || d.owner(2) != none || d.homeless > 0 {
		t.Fatalf("places: %+v, %d homeless", d.a.places, d.homeless)
	}
	asked := d.asked()
	d.sitsWith(0, 1, 2, 1, map[string]uint64{asked[0]: 1})
	if d.next(); d.count(0) != 2 || d.owner(2) != 0 || d.count(1) != 1 {
		t.Errorf("places: %+v", d.a.places)
	}
	// The other member goes: what it had finds no room, nor does what waits for a full member.
	d.a.places[2] = placed{none, 9, false}
	d.a.places[0], d.a.places[1] = placed{0, 9, false}, placed{0, 9, false}
	d.vacant(1, 1)
	if d.next(); d.count(0) != 2 || d.homeless != 1 {
		t.Errorf("places: %+v, %d homeless", d.a.places, d.homeless)
	}
}

// A pin is for as long as the shard is one of the group's, or is on its way out.
func TestPinsOfWhatIsGone(t *testing.T) {
	d := heldDesk(t, Named("0", "1", "2"))
	d.a.pins = map[string]string{"0": "x", "2": "x"}
	d.cfg.Shards = Named("0", "1")
	d.next()
	if len(d.a.pins) != 2 || len(d.asked()) != 1 {
		t.Errorf("while shard 2 is on its way out: pins %v, asked for %v", d.a.pins, d.asked())
	}
	d.sits(0, 1, 1, map[string]uint64{"2": 1})
	d.next()
	if len(d.a.pins) != 1 || d.a.pins["0"] != "x" {
		t.Errorf("when it is gone: pins %v", d.a.pins)
	}
}

// A pin holds though the member fails: the shard waits for it.
func TestFailedShardsWaitForTheirPin(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.sits(1, 1, 0, nil)
	d.a.pins = map[string]string{"0": "a"}
	d.a.shards, d.a.places = Numbered(2), []placed{{none, 1, false}, {none, 1, false}}
	d.a.failures = map[string][]failure{"0": {{Member: "a", Count: 1, Until: time.Now().Add(time.Minute)}}}
	if d.next(); d.owner(0) != none || d.owner(1) == none {
		t.Errorf("%+v", d.a.places)
	}
	d.a.failures["0"][0].Until = time.Now().Add(-time.Second)
	if d.next(); d.owner(0) != 0 || len(d.a.failures) != 1 {
		t.Errorf("%+v when it may be tried again", d.a.places)
	}
	d.a.failures["0"][0].Until = time.Now().Add(-forget - time.Second)
	if d.next(); len(d.a.failures) > 0 {
		t.Errorf("%+v is remembered", d.a.failures)
	}
}

// Sessions are in the order of their seats, whoever came first; and a shard stays its owner's.
func TestSessionsAreInOrder(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(3, 1, 0, nil)
	d.next()
	d.sits(0, 1, 0, nil)
	d.sits(1, 1, 0, nil)
	d.next()
	var seats []int
	for _, m := range d.a.public().Members() {
		seats = append(seats, m.Session.Seat)
	}
	if !slices.Equal(seats, []int{0, 1, 3}) || d.owner(0) != 3 || d.owner(1) != 3 {
		t.Errorf("seats %v; shards at %d and %d", seats, d.owner(0), d.owner(1))
	}
}

// What is on record of a seat, and what follows.
func TestFacts(t *testing.T) {
	d := newDesk(t, 1)
	f, id := d.facts, func(n leaderelection.ElectionNumber) SessionID { return SessionID{0, n} }
	expect := func(when string, alive, ended leaderelection.ElectionNumber) {
		t.Helper()
		for n := leaderelection.ElectionNumber(1); n < 6; n++ {
			if (f.alive(id(n)) != nil) != (n == alive) || f.ended(id(n)) != (n <= ended) {
				t.Errorf("%s: session %d is alive: %v, ended: %v", when, n, f.alive(id(n)) != nil, f.ended(id(n)))
			}
		}
	}
	expect("not looked at", 0, 0)
	d.sits(0, 2, 1, map[string]uint64{"0": 5})
	expect("held", 2, 1)
	for token, want := range map[uint64]bool{0: false, 4: true, 5: true, 6: false} {
		if got := f.letGo(id(2), "0", token); got != want || f.letGo(id(1), "0", token) || f.letGo(id(2), "1", token) {
			t.Errorf("token %d let go: %v", token, got)
		}
	}
	d.sits(0, 2, 0, nil)
	if !f.letGo(id(2), "0", 5) {
		t.Error("a stale read takes back what was let go")
	}
	d.lapses(0)
	expect("it seems to be over", 0, 1)
	d.learn(0, f.seats[0].entry, false)
	expect("it still seems so", 0, 1)
	d.sits(0, 2, 2, nil)
	expect("it was extended", 2, 1)
	d.vacant(0, 2)
	expect("released", 0, 2)
	d.sits(0, 3, 0, nil)
	expect("taken anew", 3, 2)
	if f.letGo(id(3), "0", 5) {
		t.Error("the new session has let go of what the last one had")
	}
	f.seats[0].hear(&leaderelection.RaceEntry{ElectionNumber: 3, Extension: 1})
	expect("told that it has released", 0, 3)
	d.sits(0, 3, 2, nil)
	expect("which was undone", 0, 3)
	d.learn(0, &leaderelection.RaceEntry{LeaderID: "c#1", ElectionNumber: 4}, false) // one that seals
	expect("being sealed", 0, 3)
}

// What a coordinator must look at again is reported: that a term seems over, or not any more. A
// record that is told of twice says nothing new.
func TestFactsThatMatter(t *testing.T) {
	d := newDesk(t, 1)
	d.sits(0, 2, 1, nil)
	s, id := d.facts.seats[0], SessionID{0, 2}
	at := func(extension uint64) *leaderelection.RaceEntry {
		e := s.entry.Clone()
		e.Extension = extension
		return e
	}
	for i, c := range []struct{ matters, want bool }{
		{s.learn(at(2), false), false},
		{s.learn(at(3), true), true},
		{s.hear(at(3)), false},
		{s.hear(at(4)), true},
		{s.hear(at(5)), false},
		{s.learn(at(5), true), true},
		{s.learn(at(6), false), true},
	} {
		if c.matters != c.want {
			t.Errorf("step %d matters: %v", i, c.matters)
		}
	}
	if s.learn(at(7), true); d.facts.alive(id) != nil {
		t.Error("it is alive though its term seems over")
	}
	if s.hear(at(7)); d.facts.alive(id) != nil {
		t.Error("it is alive since it was told of the same again")
	}
	if s.hear(at(8)); d.facts.alive(id) == nil {
		t.Error("it is not alive though it was told to have been extended")
	}
	stopped := 0
	s.sealing = func() { stopped++ }
	d.sits(0, 3, 0, nil)
	if stopped != 1 {
		t.Error("the seat is sealed on though a member has taken it")
	}
}

// bench is a coordinator whose loop does not run.
func bench(t *testing.T, d *desk, announce func([]string, []byte) error) *coordinator {
	m := &Member{cfg: d.cfg.withDefaults(), stores: newStores(good)}
	ctx, cancel := context.WithCancel(t.Context())
	c := newCoordinator(m, ctx, func() bool { return true }, announce)
	c.facts = d.facts
	t.Cleanup(func() {
		cancel()
		c.watchers.Wait()
	})
	return c
}

// Each version is told once, and one that could not be told again.
func TestTellsEachVersion(t *testing.T) {
	var told []string
	fails := true
	c := bench(t, newDesk(t, 1), func(_ []string, params []byte) error {
		told = append(told, string(params))
		if fails {
			return errors.New("too large")
		}
		return nil
	})
	c.tell() // there is nothing to tell
	c.known = gives(3, 1, placed{0, 1, false})
	c.tell()
	fails = false
	c.tell()
	c.tell()
	c.known = gives(4, 1, placed{0, 2, false})
	c.tell()
	c.tell()
	third, fourth := `{"form":"coordinator/1","version":3}`, `{"form":"coordinator/1","version":4}`
	if want := []string{third, third, fourth}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// All seats that the assignment names are looked at, and the ones after them, whatever
// becomes of those between.
func TestNamedSeatsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bench(t, newDesk(t, 1), nil)
		c.known = gives(3, 1, placed{0, 1, false})
		c.known.sessions[0].Seat = 5
		if wait, err := c.round(); err != nil || wait != c.m.cfg.TermLength/2 {
			t.Errorf("it looks again after %v, %v", wait, err)
		}
		if c.facts.seats[5] == nil || c.facts.seats[6] == nil || len(c.facts.seats) != 2 {
			t.Errorf("watched are %v", c.facts.seats)
		}
	})
}

// The first assignment is written on the condition that there is none, and each next one on
// that of the one before.
func TestWritesAreConditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 2)
		c := bench(t, d, func([]string, []byte) error { return nil })
		store := memory.NewDecider()
		store.Replace(&leaderelection.RaceEntry{}) // it was there, and is empty
		var conditions []leaderelection.LeaderToken
		store.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Write {
				conditions = append(conditions, op.Entry.Token)
			}
			return memory.Fault{}
		})
		c.assignment = store.Polled()
		want := []leaderelection.LeaderToken{store.Entry().Token}
		d.sits(0, 1, 0, nil)
		d.learn(1, &leaderelection.RaceEntry{}, false)
		for range 2 {
			if _, err := c.round(); err != nil {
				t.Error(err)
			}
		}
		want = append(want, store.Entry().Token)
		d.vacant(0, 1)
		if _, err := c.round(); err != nil || !slices.Equal(conditions, want) || uint64(c.known.version) != uint64(time.Now().Unix())+1 {
			t.Errorf("%v; written on the conditions %v, want %v: %+v", err, conditions, want, c.known)
		}
	})
}

// A feed may merge "leaving" and the release into one. A restarted member is waited for then, too.
func TestReleaseThatIsAllThatIsHeardSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 1)
		c := bench(t, d, nil)
		d.sits(0, 1, 0, nil)
		time.Sleep(T)
		if matters := c.learn(seatEvent{seat: 0, told: true, entry: &leaderelection.RaceEntry{ElectionNumber: 1, Extension: 1}}); !matters || time.Until(c.settled) != T/15 {
			t.Errorf("%v, settled in %v", matters, time.Until(c.settled))
		}
	})
}

// Rule 9: what is being sealed is not sealed a second time beside that.
func TestRule09OneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said said
		d := newDesk(t, 1)
		d.cfg.Logger, d.cfg.MemberID = said.logger(), "a"
		c := bench(t, d, nil)
		d.sits(0, 1, 0, nil)
		d.lapses(0)
		c.seal()
		c.seal()
		if n := strings.Count(said.String(), "seals a seat"); n != 1 {
			t.Errorf("%d at a time", n)
		}
	})
}

// Rule 9: the session of a member that is gone is ended on record. If members die on that seat one
// after the other, it is sealed each time, and once.
func TestRule09EachTime(t *testing.T) {
	both(t, func(g *group) {
		var said said
		g.with("a", said.log)
		b := g.join("b")
		for n := 1; n <= 3; n++ {
			g.settles(12, 2*T)
			session := b.member.Session()
			g.without(b, 4*T)
			if e := g.Of(seatName(session.Seat)).Entry(); !e.Vacant() || e.ElectionNumber != session.Number+1 {
				g.t.Errorf("the seat of a member that is gone: %+v", e)
			}
			if b.heal(); strings.Count(said.String(), "seals a seat") != n {
				g.t.Errorf("it was sealed %d times for %d deaths", strings.Count(said.String(), "seals a seat"), n)
			}
		}
	})
}

// Rule 9: a feed tells of extensions that are undone, and then the member is gone: what
// reads show is older than what was told, and counts.
func TestRule09SealsWhatSeemsExtended(t *testing.T) {
	both(t, func(g *group) {
		g.join("a")
		b := g.with("b")
		time.Sleep(time.Minute)
		seat := g.Of(seatName(b.member.Session().Seat))
		undone := seat.Entry()
		undone.Extension += 5
		undone.TermExpiry = undone.TermExpiry.Add(T / 2)
		seat.Tell(undone)
		g.without(b, 4*T)
	})
}

// Rule 3: a feed tells of an acquisition with a number that was skipped, and of its
// release, and both are undone; then a session begins with a smaller number.
func TestRule03Undone(t *testing.T) {
	play(t, func(g *group) {
		a := g.with("a")
		info := must(json.Marshal(a.member.info()))(t)
		time.Sleep(time.Minute)
		told := &leaderelection.RaceEntry{
			LeaderID: "b", Incarnation: "b", ElectionNumber: leaderelection.ElectionNumber(time.Now().Unix() + 1000), ConnectionParams: info, TermLength: T, TermExpiry: time.Now().Add(T),
		}
		seat := g.Of(seatName(1))
		seat.Tell(told)
		time.Sleep(time.Second)
		over := told.Clone()
		over.LeaderID, over.Extension = "", 1
		seat.Tell(over)
		time.Sleep(time.Second)
		g.polled = true // this one hears of nothing that is undone
		b := g.join("b")
		if g.settles(12, 2*time.Minute); b.member.Session().Seat != 1 || b.member.Session().Number >= told.ElectionNumber {
			t.Errorf("b has %v", b.member.Session())
		}
	})
}

// Rule 3: a feed tells of an extension that is undone, and the release that follows has its
// numbers.
func TestRule03ReleaseThatIsNoNews(t *testing.T) {
	play(t, func(g *group) {
		g.join("a")
		b := g.with("b")
		time.Sleep(time.Minute)
		seat := g.Of(seatName(b.member.Session().Seat))
		undone := seat.Entry()
		undone.Extension++
		undone.TermExpiry = undone.TermExpiry.Add(T / 2)
		seat.Tell(undone)
		time.Sleep(time.Millisecond)
		vacant := seat.Entry()
		vacant.LeaderID, vacant.Extension = "", vacant.Extension+1
		g.dies(b) // after it has released
		seat.Replace(vacant)
		g.settles(12, 4*T)
		g.show(b)
	})
}

// watching is a watcher whose loop does not run, its record, and what it posted last.
func watching(t *testing.T, change func(*Config)) (*watcher, *memory.Decider, func() seatEvent) {
	d := newDesk(t, 1)
	d.cfg.TermLength, d.cfg.MaxClockSkew = T, S
	change(&d.cfg)
	c := bench(t, d, nil)
	c.events = make(chan seatEvent, 100)
	store := memory.NewDecider()
	return &watcher{c: c, seat: 0, decider: store.Polled(), moving: &newSeat().moving}, store, func() (last seatEvent) {
		for len(c.events) > 0 {
			last = <-c.events
		}
		return last
	}
}

// held is a seat's record whose term ends then.
func held(number leaderelection.ElectionNumber, extension uint64, expiry time.Duration) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: "b#1", Incarnation: "b", ElectionNumber: number, Extension: extension, TermLength: T, TermExpiry: time.Now().Add(expiry)}
}

// A term that is not compared with clocks, or that ends later than right clocks can have written,
// is not waited for: it seems over when the record has stayed as it is for a term and the skew.
func TestLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for policy, expiry := range map[leaderelection.ClockPolicy]time.Duration{leaderelection.Unsynchronized: -time.Hour, leaderelection.Synchronized: time.Hour} {
			w, store, posted := watching(t, func(c *Config) { c.ClockPolicy = policy })
			lapsed := func(after time.Duration) bool {
				time.Sleep(after)
				w.look()
				return posted().lapsed
			}
			store.Replace(held(1, 0, expiry))
			if lapsed(0) || lapsed(T+S) || !lapsed(1) {
				t.Errorf("%v: it does not seem over after a term and the skew, but before, or not at all", policy)
			}
			store.Replace(held(1, 1, expiry))
			if lapsed(0) || lapsed(T) || w.due() != T {
				t.Errorf("%v: it was extended, and seems over", policy)
			}
			if !lapsed(2 * S) {
				t.Errorf("%v: it does not seem over after its last extension", policy)
			}
			store.Replace(&leaderelection.RaceEntry{ElectionNumber: 1, Extension: 2})
			if lapsed(0) || lapsed(2*T) {
				t.Errorf("%v: nobody has it, and a term seems over", policy)
			}
			if store.Replace(held(2, 0, T+2*S)); policy == leaderelection.Synchronized && (lapsed(0) || lapsed(T+S+1)) {
				t.Error("its leader's clock may be right, and it seems over before its TermExpiry")
			}
		}
	})
}

// A held seat is read when its term would be over, and the skew: by the extensions that are
// told too, which are not read. A vacant one is left to Watch.
func TestSeatsAreReadWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store, posted := watching(t, func(*Config) {})
		due := func(what string, want time.Duration) {
			t.Helper()
			if got := w.due(); got != want {
				t.Errorf("%s: due after %v, want %v", what, got, want)
			}
		}
		reads := 0
		fails := func(err error) {
			store.Inject(func(memory.Op) memory.Fault { reads++; return memory.Fault{Err: err} })
		}
		fails(memory.ErrLost)
		for n, want := range []int{1, 2, 3, 4, 4} {
			w.look()
			due("cannot be read", time.Duration(want)*T/8)
			if e := posted(); e.err == nil {
				t.Errorf("read %d: it is not told that it failed", n)
			}
		}
		fails(nil)
		store.Replace(held(1, 1, 10*time.Second))
		w.look()
		due("held", 10*time.Second+S+time.Millisecond)
		reads = 0
		w.told(held(1, 2, 14*time.Second))
		due("extended", 14*time.Second+S+time.Millisecond)
		w.told(held(1, 1, 9*time.Second))
		due("told of an older one", 14*time.Second+S+time.Millisecond)
		if e := posted(); reads != 0 || !e.told {
			t.Errorf("an extension was read; posted is %+v", e)
		}
		w.told(held(2, 0, T)) // of another session: what is read has not got there
		due("the read lags", T/8)
		w.look()
		due("the read lags", T/4)
		store.Replace(held(2, 0, 12*time.Second))
		w.look()
		due("read", 12*time.Second+S+time.Millisecond)
		store.Replace(&leaderelection.RaceEntry{ElectionNumber: 2, Extension: 5})
		w.told(store.Entry())
		due("vacant", math.MaxInt64)
		fails(memory.ErrLost)
		w.look()
		due("cannot be read any more", T/8)
	})
}
