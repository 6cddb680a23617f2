//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// desk is what a coordinator goes by: facts, and the newest assignment.
type desk struct {
	t     *testing.T
	facts *facts
	cfg   Config
	a     *assignment
}

func newDesk(t *testing.T, shards int) *desk {
	return &desk{t: t, facts: newFacts(), cfg: Config{Shards: Numbered(shards), MaxMoving: 100, TermLength: T}, a: &assignment{id: "none"}}
}

// sits puts a record of a session on a seat; change makes it another one.
func (d *desk) sits(k int, number leaderelection.ElectionNumber, extension uint64, letGo map[string]uint64) {
	d.t.Helper()
	id := string(rune('a' + k))
	info := (&Member{cfg: Config{MemberID: id, Weight: 1, Shards: d.cfg.Shards}}).info()
	info.LetGo = letGo
	d.says(k, number, extension, info)
}

// says puts a record of a session on a seat.
func (d *desk) says(k int, number leaderelection.ElectionNumber, extension uint64, info seatInfo) {
	d.t.Helper()
	text, err := json.Marshal(info)
	if err != nil {
		d.t.Fatal(err)
	}
	d.learn(k, &leaderelection.RaceEntry{LeaderID: info.Member, ElectionNumber: number, Extension: extension, ConnectionParams: text}, false)
}

// decideAs is the next assignment and how many shards find no room.
func decideAs(a *assignment, f *facts, cfg *Config) (next *assignment, homeless int) {
	d := decide(a, f, cfg, time.Now())
	return d.next, d.homeless
}

func (d *desk) vacant(k int, number leaderelection.ElectionNumber) {
	d.learn(k, &leaderelection.RaceEntry{ElectionNumber: number, Extension: 1000}, false)
}

func (d *desk) lapses(k int) { d.learn(k, d.facts.seats[k].entry, true) }

func (d *desk) learn(k int, e *leaderelection.RaceEntry, lapsed bool) {
	if d.facts.seats[k] == nil {
		d.facts.seats[k] = &seat{}
	}
	d.facts.seats[k].learn(e, lapsed)
}

// next makes the next assignment, and returns whether there was need for one.
func (d *desk) next() bool {
	d.t.Helper()
	next := decide(d.a, d.facts, &d.cfg, time.Now()).next
	if next == nil {
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

// seated is a session's loop, and what it would be told; nothing of it runs.
func seated(t *testing.T) (*sitting, func(a *assignment)) {
	m := newMember(Config{MemberID: "a", Weight: 1, OnOwned: func(ctx context.Context, _ *Owned) error { <-ctx.Done(); return nil }}.withDefaults(), newStores(nil))
	view := viewtest.New(nil, 0)
	view.Set(time.Now().Add(time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	s := newSession(m, nil, 0, ctx, view.TimeView)
	s.id.Number = 3
	s.tell = func([]string, []byte) error { return nil }
	t.Cleanup(func() {
		cancel()
		s.end()
		m.await()
	})
	return s, func(a *assignment) {
		t.Helper()
		if a.id == "" {
			a.id = "id"
		}
		if err := a.check(); err != nil {
			t.Fatal(err)
		}
		s.read(reading{a: a})
	}
}

// owns is the newest token of shard "0" that the session may act on, or 0.
func (s *sitting) owns() uint64 {
	if o := s.owned[0]; o != nil && o.ValueInFuture() {
		return o.token
	}
	return 0
}

func gives(version leaderelection.ElectionNumber, number leaderelection.ElectionNumber, p placed) *assignment {
	return &assignment{version: version, shards: Numbered(1), sessions: []session{{SessionID: SessionID{0, number}, Member: "a"}}, places: []placed{p}}
}

// Rule 1: what was given to an earlier session of the seat is not this one's; nor is a
// token that this session has let go, whatever an assignment says.
func TestRule01OnlyWhatIsGivenToThisSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(gives(1, 2, placed{0, 5, false}))
		if got := s.owns(); got != 0 {
			t.Fatalf("owns token %d, which is an earlier session's", got)
		}
		read(gives(2, 3, placed{0, 6, false}))
		if got := s.owns(); got != 6 {
			t.Fatalf("owns token %d, want 6", got)
		}
		read(gives(3, 3, placed{0, 6, true}))
		synctest.Wait()
		s.ended(<-s.m.returned)
		s.say()
		if s.letGo["0"] != 6 || s.owns() != 0 {
			t.Fatalf("let go: %v, owns %d", s.letGo, s.owns())
		}
		read(gives(4, 3, placed{0, 6, false}))
		if got := s.owns(); got != 0 || s.letGo["0"] != 6 {
			t.Fatalf("owns token %d again, which it has let go: %v", got, s.letGo)
		}
		read(gives(5, 3, placed{0, 7, false}))
		if got := s.owns(); got != 7 || len(s.letGo) > 0 {
			t.Fatalf("owns token %d, want 7; let go: %v", got, s.letGo)
		}
	})
}

// Rule 2: a read may be stale.
func TestRule02OlderIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(gives(7, 3, placed{0, 7, true}))
		read(gives(6, 3, placed{0, 8, false}))
		if got := s.owns(); got != 0 {
			t.Errorf("owns token %d by an older assignment", got)
		}
	})
}

// Rule 3: a feed tells of an acquisition with a number that was skipped, and of its
// release, and both are undone; then a session begins with a smaller number.
func TestRule03Undone(t *testing.T) {
	play(t, func(g *group) {
		a := g.join("a")
		g.settles(12, time.Minute)
		info, err := json.Marshal(a.member.info())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		told := &leaderelection.RaceEntry{
			LeaderID: "b", Incarnation: "b", ElectionNumber: leaderelection.ElectionNumber(time.Now().Unix() + 1000), ConnectionParams: info, TermLength: T, TermExpiry: time.Now().Add(T),
		}
		seat := g.record(seatName(1))
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
		b := g.join("b")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		seat := g.record(seatName(b.member.Session().Seat))
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

// Rule 9: a feed tells of extensions that are undone, and then the member is gone: what
// reads show is older than what was told, and counts.
func TestRule09SealsWhatSeemsExtended(t *testing.T) {
	both(t, func(g *group) {
		g.join("a")
		b := g.join("b")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		seat := g.record(seatName(b.member.Session().Seat))
		undone := seat.Entry()
		undone.Extension += 5
		undone.TermExpiry = undone.TermExpiry.Add(T / 2)
		seat.Tell(undone)
		b.cut()
		g.hide(b)
		g.settles(12, 4*T)
		g.show(b)
	})
}

// Rule 9: the session of a member that is gone is ended on record.
func TestRule09Seals(t *testing.T) {
	play(t, func(g *group) {
		g.join("a")
		b := g.join("b")
		g.settles(12, time.Minute)
		seat, number := b.member.Session().Seat, b.member.Session().Number
		b.cut()
		g.hide(b)
		g.settles(12, 4*T)
		if e := g.record(seatName(seat)).Entry(); !e.Vacant() || e.ElectionNumber != number+1 {
			t.Errorf("the seat of a member that is gone: %+v", e)
		}
		g.show(b)
	})
}

// Rule 3: a shard of a session that seems to be over stays with it until it is on record
// that the session has ended.
func TestRule03MovesOnlyWhenFreed(t *testing.T) {
	d := newDesk(t, 1)
	d.sits(0, 1, 0, nil)
	d.next()
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
	d := newDesk(t, 2)
	d.sits(0, 1, 0, nil)
	d.next()
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

// Rule 4: a shard's token is never used again, also when the shard was gone: it begins again
// after the greatest token of all that are gone.
func TestRule04TokensGrow(t *testing.T) {
	d := newDesk(t, 1)
	d.cfg.Shards = Named("a", "b", "c", "d")
	d.sits(0, 1, 0, nil)
	d.next()
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

// Rule 5: that a shard was let go is said only after its view has ended, also if OnOwned does
// not heed its ctx.
func TestRule05SaysSoOnlyAfterTheView(t *testing.T) {
	play(t, func(g *group) {
		slow := g.join("a", func(c *Config) { c.Shards, c.DrainTimeout = Numbered(2), 5*time.Second })
		slow.linger.Store(int64(20 * time.Second))
		g.settles(2, time.Minute)
		held := slow.member.Owned()
		asked := time.Now()
		g.join("b", func(c *Config) { c.Shards = Numbered(2) })
		g.settles(2, time.Minute)
		var gone *Owned
		for _, o := range held {
			if !o.ValueInFuture() {
				gone = o
			}
		}
		if took := time.Since(asked); gone == nil || took < 5*time.Second || took > 8*time.Second {
			t.Errorf("let go %v after %v, want DrainTimeout, 5s", gone, took)
		}
		said := false
		seat, _ := readSeat(g.record(seatName(0)).Entry())
		if seat != nil && seat.LetGo[gone.Name()] == gone.token {
			said = true
		}
		time.Sleep(time.Minute)
		if seat, err := readSeat(g.record(seatName(0)).Entry()); err != nil || len(seat.LetGo) > 0 {
			t.Errorf("rule 11: the seat says still, or never said (%v), what was let go: %+v, %v", said, seat, err)
		}
	})
}

// Rule 6: a member that leaves drains all its shards, and one write frees them all.
func TestRule06LeaveDrains(t *testing.T) {
	play(t, func(g *group) {
		a := g.join("a")
		a.linger.Store(int64(3 * time.Second))
		g.settles(12, time.Minute)
		begin, owned := time.Now(), a.member.Owned()
		may := func() (n int) {
			for _, o := range owned {
				if o.ValueInFuture() {
					n++
				}
			}
			return n
		}
		draining := time.AfterFunc(2*time.Second, func() {
			if may() != len(owned) {
				t.Errorf("of %d shards whose callbacks run, %d may be acted on while the member leaves", len(owned), may())
			}
		})
		a.leave()
		if draining.Stop() || may() != 0 {
			t.Errorf("after a member has left, %d shards may be acted on", may())
		}
		if took := time.Since(begin); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("left after %v, its callbacks take 3s", took)
		}
		if e := g.record(seatName(0)).Entry(); !e.Vacant() {
			t.Errorf("the seat is %+v", e)
		}
		if err := a.member.Wait(); err != nil {
			t.Errorf("Wait returns %v after Leave", err)
		}
	})
}

// Rule 10: what is not an assignment of this group is reported and left alone; members go
// on with what they own.
func TestRule10ForeignAssignmentIsLeftAlone(t *testing.T) {
	foreign := map[string]*leaderelection.RaceEntry{
		"not ours":        {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte("{}")},
		"a newer form":    {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte(`{"form":"shards/2","places":[]}`)},
		"cut off":         {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte("\x1f\x8b\x08\x00")},
		"an election":     {ElectionNumber: 99, Incarnation: "x", LeaderID: "web", TermExpiry: time.Now()},
		"unknown session": {ElectionNumber: 99, Incarnation: "x", ConnectionParams: []byte(`{"form":"shards/1","numbered":1,"places":[[0,1]]}`)},
		"no id":           {ElectionNumber: 99, ConnectionParams: []byte(`{"form":"shards/1","numbered":1,"places":[[-1,1]]}`)},
	}
	for name, e := range foreign {
		t.Run(name, func(t *testing.T) {
			play(t, func(g *group) {
				a := g.join("a")
				g.settles(12, time.Minute)
				g.record(assignmentName).Replace(e)
				time.Sleep(time.Minute)
				if n := len(a.member.Owned()); n != 12 {
					t.Errorf("%d shards are owned", n)
				}
				if now := g.record(assignmentName).Entry(); string(now.ConnectionParams) != string(e.ConnectionParams) || now.ElectionNumber != 99 {
					t.Errorf("it was replaced: %+v", now)
				}
				if _, err := readAssignment(e); !errors.Is(err, ErrForeign) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// Rule 12: a store that was set back gets the newest assignment again, with a greater
// version; tokens do not go back.
func TestRule12SetBack(t *testing.T) {
	play(t, func(g *group) {
		g.join("a")
		g.settles(12, time.Minute)
		old := g.record(assignmentName).Entry()
		g.join("b")
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		version := g.record(assignmentName).Entry().ElectionNumber
		g.record(assignmentName).Replace(old)
		g.join("c")
		g.settles(12, time.Minute)
		if e := g.record(assignmentName).Entry(); e.ElectionNumber <= version {
			t.Errorf("version %d follows %d", e.ElectionNumber, version)
		}
	})
}

// Rule 12: one version with two contents: everything is let go, and a new session begins.
func TestRule12TwoContents(t *testing.T) {
	play(t, func(g *group) {
		a := g.join("a")
		g.settles(12, time.Minute)
		before := a.member.Session()
		e := g.record(assignmentName).Entry()
		e.Incarnation = "another"
		g.record(assignmentName).Replace(e)
		time.Sleep((lookTerms + 2) * T)
		g.settles(12, 5*T)
		if a.member.Session() == before {
			t.Error("the session goes on")
		}
	})
}
