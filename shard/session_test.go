//go:build go1.25

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/viewhook"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// sits has f play with a session's loop, and what it would be told. Nothing of it runs.
func sits(t *testing.T, f func(t *testing.T, s *sitting, read func(a *assignment))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
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
		f(t, s, func(a *assignment) {
			t.Helper()
			if a.id == "" {
				a.id = "id"
			}
			if err := a.check(); err != nil {
				t.Fatal(err)
			}
			s.read(reading{a: a})
		})
	})
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

// of is an assignment of some shards to the session of seated; a place's session is 0 or none.
func of(version leaderelection.ElectionNumber, shards Shards, places ...placed) *assignment {
	return &assignment{version: version, shards: shards, sessions: []session{{SessionID: SessionID{0, 3}, Member: "a"}}, places: places}
}

// called has OnOwned tell of its calls, and return when it is let.
func called(s *sitting) (calls chan *Owned, leave chan struct{}) {
	calls, leave = make(chan *Owned, 10), make(chan struct{})
	s.m.cfg.OnOwned = func(_ context.Context, o *Owned) error {
		calls <- o
		<-leave
		return nil
	}
	return calls, leave
}

// Rule 1: what a session owns after each assignment that it reads, and the token that it says it
// has let go. The session is number 3.
func TestRule01WhatASessionOwns(t *testing.T) {
	type step struct {
		given       leaderelection.ElectionNumber // the session to which the shard is given
		place       placed
		owns, letGo uint64
	}
	for name, steps := range map[string][]step{
		"given to an earlier session": {{2, placed{0, 5, false}, 0, 0}, {3, placed{0, 6, false}, 6, 0}},
		"given again by a token that it has let go": {
			{3, placed{0, 6, false}, 6, 0}, {3, placed{0, 6, true}, 0, 6}, {3, placed{0, 6, false}, 0, 6}, {3, placed{0, 7, false}, 7, 0},
		},
		"named no more":             {{3, placed{0, 6, false}, 6, 0}, {3, placed{none, 6, false}, 0, 0}, {3, placed{0, 6, false}, 0, 6}},
		"asked before it was owned": {{3, placed{0, 5, true}, 0, 5}, {3, placed{0, 5, false}, 0, 5}},
		"asked by a greater token than the owned one": {
			{3, placed{0, 5, false}, 5, 0}, {3, placed{0, 8, true}, 0, 8}, {3, placed{0, 8, false}, 0, 8},
		},
		"given by a smaller token, by a store that was set back": {
			{3, placed{0, 5, false}, 5, 0}, {3, placed{0, 4, false}, 0, 4}, {3, placed{0, 5, false}, 0, 5}, {3, placed{0, 6, false}, 6, 0},
		},
	} {
		sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
			var begun, owned []*Owned
			s.m.cfg.OnOwned = func(ctx context.Context, o *Owned) error {
				begun = append(begun, o)
				<-ctx.Done()
				return nil
			}
			for i, c := range steps {
				read(gives(leaderelection.ElectionNumber(i+1), c.given, c.place))
				s.settleReturned()
				if s.owns() != c.owns || s.letGo["0"] != c.letGo || len(s.m.owned) != len(s.owned) || (c.owns == 0) != (len(s.owned) == 0) {
					t.Fatalf("%s, step %d: owns %d, want %d; has let go of %v, want %d", name, i, s.owns(), c.owns, s.letGo, c.letGo)
				}
				for _, o := range owned {
					if o.token != c.owns && o.ValueInFuture() {
						t.Errorf("%s, step %d: token %d may be acted with", name, i, o.token)
					}
				}
				if o := s.owned[0]; o != nil && !slices.Contains(owned, o) {
					owned = append(owned, o)
				}
			}
			if !slices.Equal(begun, owned) {
				t.Errorf("%s: %d callbacks of %d that were owned", name, len(begun), len(owned))
			}
		})
	}
}

// settleReturned has the session hear of the callbacks that have returned.
func (s *sitting) settleReturned() {
	synctest.Wait()
	s.endedToo()
	s.say()
}

// Rule 1: a greater token under the same session is another time: others may have owned the
// shard in between, so the owner by the token before is none any more.
func TestRule01GreaterTokenIsAnotherTime(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		calls, leave := called(s)
		read(gives(1, 3, placed{0, 5, false}))
		first := <-calls
		read(gives(4, 3, placed{0, 8, false}))
		if first.ValueInFuture() || !errors.Is(context.Cause(first.ctx), ErrMoved) || s.owns() != 8 {
			t.Errorf("token 5 may be acted with: %v (%v); owned is %d", first.ValueInFuture(), context.Cause(first.ctx), s.owns())
		}
		close(leave)
		s.ended(<-s.m.returned)
		if again := <-calls; again.token != 8 {
			t.Errorf("it is called with token %d", again.token)
		}
	})
}

// Rule 2: a read may be stale.
func TestRule02OlderIsNoNews(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		read(gives(7, 3, placed{0, 7, true}))
		read(gives(6, 3, placed{0, 8, false}))
		if got := s.owns(); got != 0 {
			t.Errorf("owns token %d by an older assignment", got)
		}
	})
}

// Rule 5: a shard that is asked for is told so, by the cause of its ctx, and may be acted on
// meanwhile. The time to drain is counted from when it was asked for first.
func TestRule05Asks(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		_, leave := called(s)
		defer close(leave)
		read(gives(1, 3, placed{0, 5, false}))
		o := s.owned[0]
		read(gives(2, 3, placed{0, 5, true}))
		if cause := context.Cause(o.Context()); cause != ErrMoved || !o.ValueInFuture() {
			t.Errorf("its ctx has ended with %v; it may be acted on: %v", cause, o.ValueInFuture())
		}
		by := o.drainBy
		time.Sleep(time.Second)
		if read(gives(3, 3, placed{0, 5, true})); !o.drainBy.Equal(by) {
			t.Errorf("it drains until %v, and then %v", by, o.drainBy)
		}
	})
}

// Rule 5: also where the shards have become others meanwhile, so that it is at another place.
func TestRule05DrainsThoughShardsChange(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		read(of(1, Named("b"), placed{0, 5, false}))
		read(of(2, Named("a", "b"), placed{none, 1, false}, placed{0, 5, true}))
		s.settleReturned()
		if s.letGo["b"] != 5 || len(s.owned) > 0 {
			t.Errorf("let go: %v, owned: %v", s.letGo, s.owned)
		}
	})
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
		time.Sleep(time.Minute)
		if seat, err := readSeat(g.Of(seatName(0)).Entry()); err != nil || len(seat.LetGo) > 0 {
			t.Errorf("rule 11: the seat still says what was let go: %+v, %v", seat, err)
		}
	})
}

// Rule 5: a shard is not let go while a request that was let in runs, whyever it must go; and no
// request is let in any more.
func TestRule05RequestsThatWereLetIn(t *testing.T) {
	for name, c := range map[string]struct {
		cause error // of the end of the shard's ctx
		goes  func(a *player, fail chan<- error)
	}{
		"the member leaves": {errLeft, func(a *player, _ chan<- error) {
			go func() { _ = a.member.Leave(context.Background()) }()
		}},
		"the shard moves": {ErrMoved, func(a *player, _ chan<- error) { a.g.join("b") }},
		"OnOwned fails":   {ErrFailed, func(_ *player, fail chan<- error) { fail <- errors.New("no such table") }},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(g *group) {
				fail := make(chan error)
				a := g.with("a", func(c *Config) {
					c.OnOwned = func(_ context.Context, o *Owned) error {
						if o.Name() == "3" {
							return <-fail
						}
						return nil // it stays owned
					}
				})
				owned := a.member.Owned()
				if name != "OnOwned fails" {
					fail <- nil
				}
				for _, o := range owned {
					for range 2 {
						if !viewhook.EnterShard(o) {
							t.Fatalf("nothing may enter shard %s, which is owned", o.Name())
						}
					}
					viewhook.LeaveShard(o)
				}
				c.goes(a, fail)
				time.Sleep(T / 2)
				var going []*Owned
				for _, o := range owned {
					entered := viewhook.EnterShard(o)
					if entered {
						viewhook.LeaveShard(o)
					}
					switch {
					case o.Context().Err() == nil:
						if !entered || !o.ValueInFuture() {
							t.Errorf("shard %s stays, and lets in: %v, may be acted on: %v", o.Name(), entered, o.ValueInFuture())
						}
					case entered:
						t.Errorf("a request has entered shard %s, which is to be let go", o.Name())
					case !o.ValueInFuture():
						t.Errorf("shard %s was let go while a request ran", o.Name())
					default:
						going = append(going, o)
						if cause := context.Cause(o.Context()); !errors.Is(cause, c.cause) {
							t.Errorf("shard %s must go by %v, want %v", o.Name(), cause, c.cause)
						}
					}
				}
				if len(going) == 0 {
					t.Fatal("no shard is to be let go")
				}
				for _, o := range owned {
					viewhook.LeaveShard(o)
				}
				time.Sleep(T / 10)
				for _, o := range going {
					if o.ValueInFuture() || viewhook.EnterShard(o) {
						t.Errorf("shard %s is not let go, though its requests have returned", o.Name())
					}
				}
			})
		})
	}
}

// A request that runs on does not keep a shard for longer than DrainTimeout, and does no harm later.
func TestRule05RequestOverrunsTheDrain(t *testing.T) {
	play(t, func(g *group) {
		a := g.with("a")
		o := a.member.Owned()[0]
		viewhook.EnterShard(o)
		begin := time.Now()
		a.leave()
		if took := time.Since(begin); o.ValueInFuture() || took < T || took > 2*T {
			t.Errorf("left after %v, may be acted on: %v", took, o.ValueInFuture())
		}
		viewhook.LeaveShard(o)
		synctest.Wait()
		if viewhook.EnterShard(o) || viewhook.EnterShard(new(Owned)) {
			t.Error("a shard that is over lets a request in")
		}
	})
}

// Rule 6: what a member is given while it leaves is let go at once, and never owned.
func TestRule06TakesNothingNew(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		s.leave()
		read(gives(1, 3, placed{0, 6, false}))
		if s.owns() != 0 || s.letGo["0"] != 6 {
			t.Errorf("it owns %d, and says that it has let go of %v", s.owns(), s.letGo)
		}
	})
}

// Rule 6: while a member that leaves drains, its callbacks may act: the seat is kept for them. Each shard's
// view ends when its own OnOwned has returned, and at once if it had before. Then one write frees the
// seat, and nothing of the session is left.
func TestRule06LeaveDrains(t *testing.T) {
	play(t, func(g *group) {
		const shards = 4
		a := g.join("a", func(c *Config) {
			c.Shards = Numbered(shards)
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				if o.Name() == "0" {
					return nil // it stays owned
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, errLeft) {
					t.Errorf("the cause is %v", cause)
				}
				takes, _ := strconv.Atoi(o.Name())
				time.Sleep(time.Duration(takes) * time.Second)
				return nil
			}
		})
		g.settles(shards, time.Minute)
		begin, owned := time.Now(), a.member.Owned()
		go a.leave()
		for n := range shards {
			time.Sleep(time.Until(begin.Add(time.Duration(n)*time.Second + time.Second/2)))
			for i, o := range owned {
				if o.ValueInFuture() != (i > n) {
					t.Errorf("after %v, shard %s may be acted on: %v", time.Since(begin), o.Name(), o.ValueInFuture())
				}
			}
		}
		if err := a.member.Wait(); err != nil || time.Since(begin) > 4*time.Second {
			t.Errorf("left after %v, the callbacks take 3s: %v", time.Since(begin), err)
		}
		if a.member.Session() != (SessionID{}) || len(a.member.owned) > 0 {
			t.Errorf("after leaving: session %v, owned %v", a.member.Session(), a.member.owned)
		}
		if e := g.Of(seatName(0)).Entry(); !e.Vacant() {
			t.Errorf("the seat is %+v", e)
		}
	})
}

// Rule 6: what a member that leaves has let go is another's, though one OnOwned of it takes long.
func TestRule06LeavesShardByShard(t *testing.T) {
	both(t, func(g *group) {
		a := g.with("a", func(c *Config) {
			own := c.OnOwned
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				err := own(ctx, o)
				if o.Name() == "3" {
					time.Sleep(T - 2*time.Second)
				}
				return err
			}
		})
		g.join("b")
		if err := g.operator().Pin(context.Background(), "3", "a"); err != nil {
			g.t.Error(err)
		}
		g.settles(12, 2*time.Minute)
		time.Sleep(time.Minute)
		g.hide(a)
		go func() { _ = a.member.Leave(context.Background()) }()
		time.Sleep(3 * time.Second)
		if g.polled {
			time.Sleep(T / 2)
		}
		if n := g.counts()["b"]; n != 11 {
			g.t.Errorf("b owns %d while one callback of a runs", n)
		}
		g.settles(12, 2*T)
		g.show(a)
	})
}

// Rule 11: all that was let go since the last assignment is said, until the next.
func TestRule11AllIsSaid(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		two := Numbered(2)
		read(of(1, two, placed{0, 5, false}, placed{0, 7, false}))
		read(of(2, two, placed{0, 5, true}, placed{0, 7, true}))
		tells := 0
		s.tell = func([]string, []byte) error { tells++; return nil }
		if s.settleReturned(); tells != 1 {
			t.Errorf("what two callbacks have let go is said %d times", tells)
		}
		if s.letGo["0"] != 5 || s.letGo["1"] != 7 {
			t.Errorf("let go: %v", s.letGo)
		}
	})
}

// A seat's record says no more at a time of what was let go than it has room for, and all of
// it in the end.
func TestRule11NoMoreThanFits(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		const n = 1500
		var names []string
		for i := range n {
			names = append(names, strings.Repeat("\x01", 30)+fmt.Sprintf("%0200d", i))
		}
		shards, places := Named(names...), make([]placed, n)
		for i := range places {
			places[i] = placed{0, 7, true}
		}
		var info seatInfo
		s.tell = func(_ []string, params []byte) error {
			if len(params) > maxLetGo+1<<10 {
				t.Fatalf("%d bytes", len(params))
			}
			info = seatInfo{}
			return json.Unmarshal(params, &info)
		}
		rounds := 0
		for left := n; left > 0 && rounds < 100; rounds++ {
			read(of(leaderelection.ElectionNumber(rounds+1), shards, append([]placed(nil), places...)...))
			if len(info.LetGo) == 0 {
				t.Fatalf("nothing is said, of %d", left)
			}
			if rounds == 0 { // what is said stays said
				said, more := maps.Clone(s.letGo), maps.Clone(s.letGo)
				more[strings.Repeat("\x00", 200)] = 7
				if s.announce(more); !maps.Equal(s.letGo, said) {
					t.Fatalf("it says %d others", len(s.letGo))
				}
			}
			for i := range places { // as a coordinator does
				if info.LetGo[names[i]] == 7 && places[i].session == 0 {
					places[i], left = placed{none, 7, false}, left-1
				}
			}
		}
		if rounds < 5 || rounds > 20 {
			t.Errorf("%d assignments", rounds)
		}
	})
}

// A shard that comes back while the callback of its last time runs on has a callback when
// that one has returned, and not before; and a member ends when all have.
func TestOneCallbackOfAShard(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		calls, leave := called(s)
		read(gives(1, 3, placed{0, 5, false}))
		first := <-calls
		read(gives(2, 3, placed{none, 5, false}))
		read(gives(3, 3, placed{0, 8, false}))
		synctest.Wait()
		if s.owns() != 8 || len(calls) > 0 {
			t.Fatalf("owns %d, with %d more callbacks", s.owns(), len(calls))
		}
		leave <- struct{}{}
		if o := <-s.m.returned; o != first {
			t.Fatal("another returned")
		} else {
			s.ended(o)
		}
		synctest.Wait()
		if len(calls) != 1 {
			t.Fatalf("%d callbacks when the first has returned", len(calls))
		}
		if again := <-calls; again.token != 8 {
			t.Errorf("it is called with token %d", again.token)
		}
		s.end()
		ended := make(chan struct{})
		go func() { s.m.await(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the member has ended while a callback runs")
		default:
		}
		close(leave)
		<-ended
	})
}

// A shard whose callback returns without having been asked stays owned.
func TestOwnedThoughTheCallbackReturns(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		calls, leave := called(s)
		close(leave)
		read(gives(1, 3, placed{0, 5, false}))
		<-calls
		s.ended(<-s.m.returned)
		s.say()
		if s.owns() != 5 || len(s.letGo) > 0 {
			t.Errorf("owns %d, let go: %v", s.owns(), s.letGo)
		}
		read(gives(2, 3, placed{0, 5, true})) // nobody is left to wait for
		if s.owns() != 0 || s.letGo["0"] != 5 {
			t.Errorf("asked: owns %d, let go: %v", s.owns(), s.letGo)
		}
	})
}

// Owned has what may be acted on now, in the order of the shards.
func TestOwnedIsWhatMayBeActedOn(t *testing.T) {
	sits(t, func(t *testing.T, s *sitting, read func(*assignment)) {
		places := make([]placed, 12)
		for i := range places {
			places[i] = placed{0, 5, false}
		}
		read(of(1, Numbered(12), places...))
		for i, o := range s.m.Owned() {
			if o.Name() != strconv.Itoa(i) {
				t.Errorf("shard %s is the %d.", o.Name(), i)
			}
		}
		if o := s.m.Owned()[0]; !o.Get().Equal(s.view.Get()) {
			t.Errorf("owned until %v", o.Get())
		}
		o := s.m.Owned()[0]
		time.Sleep(2 * time.Hour) // the view is over, and the session has not noticed
		if was, may := s.m.Shard("0"); was == nil || may {
			t.Errorf("Shard says %v of %v, whose view is over", may, was)
		}
		s.end()
		if n := len(s.m.Owned()); n != 0 || o.ValueInFuture() || !o.Get().IsZero() {
			t.Errorf("%d are owned when the view is over", n)
		}
	})
}

// A shard's gate has the shard's token under the shard's own name, and not that of the seat. It
// closes with the shard's view, and when the shard is let go before.
func TestOwnedGate(t *testing.T) {
	view := viewtest.New(nil, 3)
	view.Set(time.Now().Add(time.Hour))
	o := &Owned{name: "7", token: 12, view: view.TimeView}
	gate := o.Gate("orders")
	token, err := gate.Token()
	if err != nil || token.String() != "orders%2F7:12" {
		t.Errorf("%v, %v", token, err)
	}
	if back, err := fence.ParseToken(token.String()); err != nil || back != token {
		t.Errorf("read back: %v, %v", back, err)
	}
	o.over.Store(true)
	if _, err := gate.Token(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("after the shard was let go: %v", err)
	}
	if _, err := new(Owned).Gate("orders").Token(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("of a zero Owned: %v", err)
	}
}

// following is when a follower reads, of whose reads each takes a second. The nth finds what shows returns.
func following(t *testing.T, shows func(f *follower, n int) (*assignment, error)) (at []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		f := follower{stores: newStores(nil), unit: 100 * time.Second, within: T, calm: time.Hour, moving: 10 * time.Second, look: make(chan struct{}, 1)}
		f.assignment = readsAs(func() (*leaderelection.RaceEntry, error) {
			at = append(at, time.Since(begun).Truncate(time.Second))
			time.Sleep(time.Second)
			a, err := shows(&f, len(at))
			if err != nil {
				return nil, err
			}
			a.id = "id"
			return a.entry(MaxAssignment)
		})
		f.run(ctx, func(*assignment, error) {})
	})
	return at
}

// readsAs is a decider whose reads a test answers.
type readsAs func() (*leaderelection.RaceEntry, error)

func (r readsAs) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) { return r() }

func (readsAs) WriteEntry(context.Context, *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return nil, errors.New("it is not written")
}

// expectReads fails unless a follower has read at these seconds.
func expectReads(t *testing.T, got []time.Duration, want ...int) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(g time.Duration, w int) bool { return g == time.Duration(w)*time.Second }) {
		t.Errorf("reads at %v, want seconds %v", got, want)
	}
}

// A read that failed is tried again after a pause, which grows until one has worked.
func TestReadsPause(t *testing.T) {
	at := following(t, func(f *follower, n int) (*assignment, error) {
		switch n {
		case 8:
			f.note(2)
			return gives(2, 3, placed{0, 5, false}), nil
		case 10:
			return gives(2, 3, placed{0, 5, false}), nil
		}
		return nil, errors.New("no")
	})
	expectReads(t, at, 0, 2, 5, 10, 19, 36, 62, 88, 89, 91)
}

// What is told while the assignment is read is a reason to read it again: that read may have
// begun before. Then it is read no more.
func TestToldWhileReading(t *testing.T) {
	expectReads(t, following(t, func(f *follower, n int) (*assignment, error) {
		if n == 1 {
			f.note(1)
		}
		return gives(1, 3, placed{0, 5, false}), nil
	}), 0, 1)
}

// Who was told of a version reads until one as new is shown.
func TestMembersReadUntilItShows(t *testing.T) {
	expectReads(t, following(t, func(f *follower, n int) (*assignment, error) {
		if n == 1 {
			f.note(5)
		}
		return gives(leaderelection.ElectionNumber(min(n, 5)), 3, placed{0, 5, false}), nil
	}), 0, 2, 5, 10, 19, 20) // the last since it was told during the first
}

// On a store that must be asked a session looks often while a shard is asked for, and only then.
func TestHurriesWhileShardsMove(t *testing.T) {
	expectReads(t, following(t, func(_ *follower, n int) (*assignment, error) {
		return gives(leaderelection.ElectionNumber(n), 3, placed{0, 6, n < 4}), nil
	}), 0, 11, 22, 33)
}

// poison counts how often OnOwned of shard "3" has failed, by member.
type poison struct {
	mu    sync.Mutex
	tries map[string]int
}

// at has OnOwned of that shard fail at the members that are named.
func (p *poison) at(members ...string) func(*Config) {
	return func(c *Config) {
		own, id := c.OnOwned, c.MemberID
		c.OnOwned = func(ctx context.Context, o *Owned) error {
			if o.Name() != "3" || !slices.Contains(members, id) {
				return own(ctx, o)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.tries[id]++
			return errors.New("it is poison: " + strings.Repeat("x", 1000))
		}
	}
}

// A shard with which a member fails is tried elsewhere, and nothing else moves for it but what
// balance needs; the assignment says who has failed.
func TestFailedShardsAreTriedElsewhere(t *testing.T) {
	both(t, func(g *group) {
		poison := &poison{tries: map[string]int{}}
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, poison.at("a", "b"))
			time.Sleep(time.Minute)
		}
		g.settles(12, time.Minute)
		o, _ := g.all()[0].member.Assignment().Owner("3")
		if o.Member != "c" {
			g.t.Errorf("%+v has the shard that works at c alone", o)
		}
		failures := g.all()[0].member.Assignment().Failures("3")
		for _, f := range failures {
			if poison.tries[f.Member] != f.Count || !strings.HasPrefix(f.Err, "it is poison") || len(f.Err) > 200 {
				g.t.Errorf("%+v after %d tries", f, poison.tries[f.Member])
			}
		}
		_, _, failing := g.all()[0].member.Assignment().Totals()
		if len(failures) != len(poison.tries) || len(failures) == 0 || failing != 1 {
			g.t.Errorf("%+v of %v", failures, poison.tries)
		}
	})
}

// A shard with which all members fail is tried again, more and more rarely, and takes nobody
// down.
func TestFailedShardsBackOff(t *testing.T) {
	both(t, func(g *group) {
		poison := &poison{tries: map[string]int{}}
		members := []string{"a", "b", "c"}
		for _, id := range members {
			g.join(id, poison.at(members...))
		}
		g.every.Store(int64(time.Second))
		time.Sleep(30 * time.Minute)
		poison.mu.Lock()
		for _, id := range members {
			if n := poison.tries[id]; n < 4 || n > 8 {
				g.t.Errorf("%s has tried %d times in half an hour", id, n)
			}
		}
		poison.mu.Unlock()
		all := 0
		for _, n := range g.counts() {
			if all += n; n < 3 || n > 4 {
				g.t.Errorf("%v", g.counts())
			}
		}
		if all != 11 {
			g.t.Errorf("%d shards are owned", all)
		}
	})
}

// An OnOwned that never returns keeps its member from nothing but that shard, though its
// session has ended.
func TestStuckCallback(t *testing.T) {
	play(t, func(g *group) {
		var once sync.Once
		let := make(chan struct{})
		var said said
		a := g.join("a", func(c *Config) {
			own := c.OnOwned
			c.Logger = said.logger()
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				stuck := false
				once.Do(func() { stuck = true })
				if stuck {
					<-let
					return nil
				}
				return own(ctx, o)
			}
		})
		g.join("b")
		time.Sleep(time.Minute)
		before := a.member.Session()
		if before == (SessionID{}) {
			t.Fatal("it has no session")
		}
		a.cut()
		g.hide(a)
		g.settles(12, 3*T)
		if s := a.member.Session(); s != (SessionID{}) {
			t.Errorf("its session is %v, which has ended", s)
		}
		g.show(a)
		a.heal()
		time.Sleep(4 * T)
		if s := a.member.Session(); s == (SessionID{}) || s == before || len(a.member.Owned()) < 5 {
			t.Errorf("its session is %v, after %v, and it owns %d", s, before, len(a.member.Owned()))
		}
		if !said.has("OnOwned has not returned") {
			t.Errorf("nothing is said of it:\n%s", &said)
		}
		close(let)
		g.settles(12, 10*T)
	})
}

// The hooks tell of each shard that is owned and let go, with the cause, and of each
// assignment, in order; one that is stuck keeps nobody from anything.
func TestTrace(t *testing.T) {
	play(t, func(g *group) {
		const drain = 3 * time.Second
		owns, causes := map[string]uint64{}, map[error]int{}
		var version leaderelection.ElectionNumber
		free := make(chan struct{})
		a := g.join("a", func(c *Config) {
			c.ShardTrace = &Trace{
				Owns: func(e Owns) { owns[e.Owned.Name()] = e.Owned.token },
				LetGo: func(e LetGo) {
					if owns[e.Owned.Name()] != e.Owned.token {
						t.Errorf("shard %s is let go by token %d, and was owned by %d", e.Owned.Name(), e.Owned.token, owns[e.Owned.Name()])
					}
					delete(owns, e.Owned.Name())
					if causes[e.Cause]++; e.Time.Sub(e.Asked) != drain {
						t.Errorf("shard %s: asked at %v, let go at %v; its callback takes %v", e.Owned.Name(), e.Asked, e.Time, drain)
					}
				},
				Assignment: func(a *Assignment) {
					if a.Version() <= version {
						t.Errorf("version %d after %d", a.Version(), version)
					}
					version = a.Version()
				},
			}
		})
		a.linger.Store(int64(drain))
		g.settles(12, time.Minute)
		stuck := g.with("b", func(c *Config) { c.ShardTrace = &Trace{Owns: func(Owns) { <-free }} })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(owns) != 6 || causes[ErrMoved] != 6 || len(causes) != 1 || version == leaderelection.NoElections {
			t.Errorf("owns %v, let go by cause %v, version %d", owns, causes, version)
		}
		a.leave()
		g.settles(12, time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(owns) != 0 || causes[errLeft] != 6 || len(causes) != 2 {
			t.Errorf("after it has left: %v, let go by cause %v", owns, causes)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := stuck.member.Leave(ctx); err != nil {
			t.Errorf("a hook that is stuck: %v", err)
		}
		g.hide(stuck)
		close(free)
	})
}

// The log has why each shard was let go, and how long that took.
func TestLetGoIsLogged(t *testing.T) {
	play(t, func(g *group) {
		var said said
		a := g.join("a", said.log)
		a.linger.Store(int64(3 * time.Second))
		g.settles(12, time.Minute)
		b := g.with("b")
		if time.Sleep(T); !said.has("has let go", "shard=", "token=", "cause=\""+ErrMoved.Error(), "took=3") {
			t.Errorf("it is not said that a shard has moved:\n%s", &said)
		}
		a.cut()
		if time.Sleep(2 * T); !said.has("has let go", "cause=\""+leaderelection.ErrExpired.Error(), "took=0s") {
			t.Errorf("it is not said that the session has ended:\n%s", &said)
		}
		a.heal()
		b.leave()
	})
}
