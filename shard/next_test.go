//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// asked are the shards that their owner is to let go.
func (d *desk) asked() (names []string) {
	for i, p := range d.a.places {
		if p.releasing {
			names = append(names, d.a.shards.Name(i))
		}
	}
	return names
}

// MaxMoving of a member's shards are on the move at a time, from the first to the last.
func TestMaxMovingAtATime(t *testing.T) {
	d := newDesk(t, 12)
	d.cfg.MaxMoving = 2
	d.sits(0, 1, 0, nil)
	d.next()
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

// A session that seems to be over is asked for nothing: its shards are free when it has ended.
func TestTheLapsedAreNotAsked(t *testing.T) {
	d := newDesk(t, 4)
	d.sits(0, 1, 0, nil)
	d.next()
	d.sits(1, 1, 0, nil)
	d.lapses(0)
	d.next()
	if len(d.asked()) > 0 {
		t.Errorf("asked for %v", d.asked())
	}
}

// Shards that find no room are counted, and stay without an owner.
func TestHomeless(t *testing.T) {
	d := newDesk(t, 4)
	info, err := json.Marshal((&Member{cfg: Config{MemberID: "a", Weight: 1, Capacity: 3, Shards: d.cfg.Shards}}).info())
	if err != nil {
		t.Fatal(err)
	}
	d.learn(0, &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, ConnectionParams: info}, false)
	next, homeless := decideAs(nil, d.facts, &d.cfg)
	if homeless != 1 || next.places[3].session != none {
		t.Errorf("%d homeless: %+v", homeless, next.places)
	}
}

// A pin is for as long as the shard is one of the group's, or is on its way out.
func TestPinsOfWhatIsGone(t *testing.T) {
	d := newDesk(t, 3)
	d.cfg.Shards = Named("0", "1", "2")
	d.sits(0, 1, 0, nil)
	d.next()
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

// Rule 12: what the store has lost is written again, with a greater version, though nothing
// in it is to change; and what is newest is never what is older.
func TestRule12WhatWasLostIsWrittenAgain(t *testing.T) {
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.next()
	known := d.a
	if next, _ := decideAs(known, d.facts, &d.cfg); next != nil {
		t.Fatalf("there is need for %+v", next)
	}
	for name, read := range map[string]*assignment{"nothing": nil, "an older one": {version: known.version - 1, id: "x", shards: known.shards, places: []placed{{none, 1, false}, {none, 8, false}}}} {
		token := memory.NewDecider().Entry().Token
		n := newest(read, known, token)
		if !n.restored || n.token != token || n.version != known.version || known.restored {
			t.Errorf("%s read: %+v", name, n)
			continue
		}
		next, _ := decideAs(n, d.facts, &d.cfg)
		if next == nil || next.version <= known.version || next.restored || next.token != token {
			t.Errorf("%s read: next is %+v", name, next)
		}
	}
	same := known.clone()
	if newest(same, known, nil) != same || newest(same, nil, nil) != same {
		t.Error("what was read is as new, and is not what counts")
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

// Operators' changes are each a version with an id of its own, and only if they change
// something; what is refused says so, a lost race is run again, other errors are told.
func TestOperatorWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		a := of(7, Numbered(2), placed{0, 1, false}, placed{0, 1, false})
		a.id = "id"
		e, err := a.entry(MaxAssignment)
		if err != nil {
			t.Fatal(err)
		}
		d.Replace(e)
		h := d.Handle()
		op, ctx := Operator{Store: func(string) (leaderelection.RaceDecider, error) { return h, nil }}, t.Context()
		version := leaderelection.ElectionNumber(7)
		for name, c := range []struct {
			do     func() error
			writes bool
		}{
			{func() error { return op.Drain(ctx, "b") }, true}, {func() error { return op.Drain(ctx, "b") }, false},
			{func() error { return op.Pin(ctx, "1", "b") }, true}, {func() error { return op.Pin(ctx, "1", "b") }, false},
			{func() error { return op.Pin(ctx, "1", "c") }, true}, {func() error { return op.Unpin(ctx, "1") }, true},
			{func() error { return op.Unpin(ctx, "1") }, false}, {func() error { return op.Undrain(ctx, "x") }, false},
			{func() error { return op.Undrain(ctx, "b") }, true}, {func() error { return op.Undrain(ctx, "b") }, false},
		} {
			before := d.Entry()
			if err := c.do(); err != nil {
				t.Fatal(err)
			}
			if c.writes {
				version++
			}
			now := d.Entry()
			if now.ElectionNumber != version || (now.Incarnation != before.Incarnation) != c.writes {
				t.Errorf("%d: version %d %q follows %d %q", name, now.ElectionNumber, now.Incarnation, before.ElectionNumber, before.Incarnation)
			}
		}
		for says, err := range map[string]error{
			`no shard "2"`: op.Pin(ctx, "2", "b"), "the member is empty": op.Pin(ctx, "1", ""), "drain: the member": op.Drain(ctx, ""),
			"Store is nil": Operator{}.Drain(ctx, "b"),
		} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		h.Inject(memory.Fail(leaderelection.ErrLostRace).On(memory.Write).Times(3))
		if err := op.Drain(ctx, "b"); err != nil {
			t.Errorf("after lost races: %v", err)
		}
		h.Inject(memory.Fail(memory.ErrLost).On(memory.Write))
		if err := op.Undrain(ctx, "b"); !errors.Is(err, memory.ErrLost) {
			t.Errorf("a write that failed: %v", err)
		}
		h.Inject(memory.Fail(leaderelection.ErrLostRace).On(memory.Write))
		late := errors.New("too late")
		short, cancel := context.WithTimeoutCause(ctx, time.Minute+time.Millisecond, late)
		defer cancel()
		if err := op.Undrain(short, "b"); !errors.Is(err, late) {
			t.Errorf("lost for good: %v", err)
		}
	})
}

// A wrong WatchConfig is refused with all its faults.
func TestWatchRefuses(t *testing.T) {
	err := WatchConfig{MaxClockSkew: -1, PollInterval: 5}.Watch(t.Context(), nil)
	if !errors.Is(err, leaderelection.ErrConfig) || !strings.Contains(err.Error(), "PollInterval is 5ns: a bare number") {
		t.Errorf("a duration without a unit: %v", err)
	}
	for _, says := range []string{"Store is nil", "callback given to Watch is nil", "must not be negative"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v lacks %q", err, says)
		}
	}
	for says, w := range map[string]WatchConfig{
		"SharedClock says that there is no skew": {ClockPolicy: leaderelection.SharedClock, MaxClockSkew: time.Second},
		"ClockPolicy is 9":                       {ClockPolicy: 9},
		"a bare number":                          {MaxClockSkew: 5},
	} {
		w.Store = func(string) (leaderelection.RaceDecider, error) { return memory.NewDecider(), nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := w.Watch(ctx, func(context.Context, *Assignment) {}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		cancel()
	}
}
