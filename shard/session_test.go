//go:build go1.25

package shard

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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

// Rule 1: what the newest assignment names no more, or names for another, is not acted on,
// whoever was asked for what.
func TestRule01WhatIsNotNamedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(gives(1, 3, placed{0, 6, false}))
		o := s.owned[0]
		read(gives(2, 3, placed{none, 6, false}))
		if o.ValueInFuture() || len(s.owned) > 0 || len(s.m.Owned()) > 0 || len(s.m.owned) > 0 {
			t.Error("it may be acted on still, or is kept")
		}
		read(gives(3, 3, placed{0, 6, false}))
		if s.owns() != 0 {
			t.Error("its token is owned again")
		}
	})
}

// Rule 1: a session that is asked to let go of a token which it has never owned has let go
// of it: it says so, and never owns it.
func TestRule01AskedBeforeItWasOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		calls, _ := called(s)
		read(gives(1, 3, placed{0, 5, true}))
		if s.letGo["0"] != 5 || len(s.owned) > 0 {
			t.Errorf("it says that it has let go of %v, and owns %v", s.letGo, s.owned)
		}
		read(gives(2, 3, placed{0, 5, false}))
		synctest.Wait()
		if s.owns() != 0 || len(calls) > 0 {
			t.Error("it owns what it has let go")
		}
	})
}

// Rule 1: a greater token under the same session is another time: others may have owned the
// shard in between, so the owner by the token before is none any more.
func TestRule01GreaterTokenIsAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
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

// Rule 1: what was let go before it was owned stays so, though an older token was owned then.
func TestRule01LetGoStaysLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(gives(1, 3, placed{0, 5, false}))
		read(gives(4, 3, placed{0, 8, true}))
		if s.letGo["0"] != 8 || s.owns() != 0 {
			t.Errorf("it says that it has let go of %v, and owns %d", s.letGo, s.owns())
		}
		read(gives(5, 3, placed{0, 8, false}))
		if s.owns() != 0 {
			t.Error("it owns what it has let go")
		}
	})
}

// Rule 5: a shard that is asked for is told so, by the cause of its ctx, and may be acted on
// meanwhile.
func TestRule05Asks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		_, leave := called(s)
		defer close(leave)
		read(gives(1, 3, placed{0, 5, false}))
		o := s.owned[0]
		read(gives(2, 3, placed{0, 5, true}))
		if cause := context.Cause(o.Context()); cause != ErrMoved || !o.ValueInFuture() {
			t.Errorf("its ctx has ended with %v; it may be acted on: %v", cause, o.ValueInFuture())
		}
	})
}

// Rule 5: the time to drain is counted from when a shard was asked for first, whatever
// assignments come meanwhile.
func TestRule05DrainsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		_, leave := called(s)
		defer close(leave)
		read(gives(1, 3, placed{0, 5, false}))
		read(gives(2, 3, placed{0, 5, true}))
		by := s.owned[0].drainBy
		time.Sleep(time.Second)
		read(gives(3, 3, placed{0, 5, true}))
		if !s.owned[0].drainBy.Equal(by) {
			t.Errorf("it drains until %v, and then %v", by, s.owned[0].drainBy)
		}
	})
}

// Rule 5: also where the shards have become others meanwhile, so that it is at another place.
func TestRule05DrainsThoughShardsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		read(of(1, Named("b"), placed{0, 5, false}))
		read(of(2, Named("a", "b"), placed{none, 1, false}, placed{0, 5, true}))
		synctest.Wait()
		s.ended(<-s.m.returned)
		s.say()
		if s.letGo["b"] != 5 || len(s.owned) > 0 {
			t.Errorf("let go: %v, owned: %v", s.letGo, s.owned)
		}
	})
}

// Rule 11: all that was let go since the last assignment is said, until the next.
func TestRule11AllIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		two := Numbered(2)
		read(of(1, two, placed{0, 5, false}, placed{0, 7, false}))
		read(of(2, two, placed{0, 5, true}, placed{0, 7, true}))
		synctest.Wait()
		tells := 0
		tell := s.tell
		s.tell = func(hostPort []string, params []byte) error { tells++; return tell(hostPort, params) }
		s.ended(<-s.m.returned)
		s.endedToo()
		s.say()
		if tells != 1 {
			t.Errorf("what two callbacks have let go is said %d times", tells)
		}
		if s.letGo["0"] != 5 || s.letGo["1"] != 7 {
			t.Errorf("let go: %v", s.letGo)
		}
	})
}

// A shard that comes back while the callback of its last time runs on has a callback when
// that one has returned, and not before; and a member ends when all have.
func TestOneCallbackOfAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
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
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
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

// A read that failed is tried again after a pause, which grows until one has worked.
func TestReadsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
		var pauses []time.Duration
		for range 8 {
			s.again = false
			s.read(reading{err: errors.New("no")})
			if pauses = append(pauses, time.Until(s.retryAt)); !s.again {
				t.Fatal("it is not tried again")
			}
		}
		if term := s.m.cfg.TermLength; pauses[0] != term/100 || pauses[1] != term/50 || pauses[7] != term/4 {
			t.Errorf("pauses %v", pauses)
		}
		read(gives(1, 3, placed{0, 5, false}))
		if s.read(reading{err: errors.New("no")}); time.Until(s.retryAt) != pauses[0] {
			t.Errorf("the pause after one that worked is %v", time.Until(s.retryAt))
		}
	})
}

// Rule 6: while a member that leaves drains, its callbacks may act: the seat is kept for
// them. Then nothing of the session is left.
func TestRule06DrainsWithItsView(t *testing.T) {
	play(t, func(g *group) {
		acted := make(chan bool, 12)
		cause := make(chan error, 12)
		a := g.join("a", func(c *Config) {
			c.OnOwned = func(ctx context.Context, o *Owned) error {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				time.Sleep(2 * time.Second)
				acted <- o.ValueInFuture()
				return nil
			}
		})
		g.settles(12, time.Minute)
		owned := a.member.Owned()
		a.leave()
		for range 12 {
			if !<-acted {
				t.Error("a callback that drains may not act")
			}
			if err := <-cause; !errors.Is(err, errLeft) {
				t.Errorf("the cause is %v", err)
			}
		}
		if slices.ContainsFunc(owned, (*Owned).ValueInFuture) || a.member.Session() != (SessionID{}) || len(a.member.owned) > 0 {
			t.Errorf("after leaving: session %v, owned %v", a.member.Session(), a.member.owned)
		}
	})
}

// A store that refuses for good before anything has worked ends Join; later nothing does, and
// a member that cannot have a seat asks for one with pauses.
func TestRefusedForGood(t *testing.T) {
	permanent := memory.Fail(leaderelection.ErrPermanent)
	refusing := func(g *group) func(*Config) {
		return func(c *Config) {
			store := c.Store
			c.Store = func(name string) (leaderelection.RaceDecider, error) {
				d, err := store(name)
				d.(interface{ Inject(memory.Faults) }).Inject(permanent)
				return d, err
			}
		}
	}
	play(t, func(g *group) {
		a := g.join("a", refusing(g))
		time.Sleep(time.Minute)
		select {
		case <-a.member.Done():
			if err := a.member.Wait(); !errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("it goes on")
		}
	})
	play(t, func(g *group) {
		a := g.join("a")
		g.settles(12, time.Minute)
		a.suffer(permanent)
		var asked atomic.Int32
		time.Sleep(4 * T)
		a.suffer(func(memory.Op) memory.Fault { asked.Add(1); return memory.Fault{Err: leaderelection.ErrPermanent} })
		time.Sleep(40 * T)
		if n := asked.Load(); n > 200 {
			t.Errorf("%d store operations in 40 terms", n)
		}
		select {
		case <-a.member.Done():
			t.Errorf("it has ended with %v", a.member.Wait())
		default:
		}
		a.heal()
		g.settles(12, 2*T)
	})
}
