//go:build go1.25

package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A seat is free that is vacant, or over by MaxClockSkew; of one that is not compared with
// clocks nobody can tell.
func TestFreeSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			entry          leaderelection.RaceEntry
			unsynchronized bool
			free           bool
		}{
			"vacant":                {leaderelection.RaceEntry{TermExpiry: time.Now().Add(T)}, false, true},
			"held":                  {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(T)}, false, false},
			"over, but for a clock": {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-S)}, false, false},
			"over":                  {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-S - 1)}, false, true},
			"no common clock":       {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-T), Unsynchronized: true}, false, false},
			"nor in the Config":     {leaderelection.RaceEntry{LeaderID: "a", TermExpiry: time.Now().Add(-T)}, true, false},
			"vacant, no clock":      {leaderelection.RaceEntry{Unsynchronized: true}, true, true},
		} {
			m := &Member{cfg: Config{MaxClockSkew: S}.withDefaults()}
			if c.unsynchronized {
				m.cfg.ClockPolicy = leaderelection.Unsynchronized
			}
			if got := m.free(&c.entry); got != c.free {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

// What a seat's record cannot say is no member.
func TestSeatsThatCannotBe(t *testing.T) {
	for text, fits := range map[string]bool{
		`{"form":"seat/1","member":"a","weight":1}`:               true,
		`{"form":"seat/1","member":"a","weight":1,"capacity":3}`:  true,
		`{"form":"seat/2","member":"a","weight":1}`:               false,
		`{"form":"seat/1","weight":1}`:                            false,
		`{"form":"seat/1","member":"a","weight":0}`:               false,
		`{"form":"seat/1","member":"a","weight":1,"capacity":-1}`: false,
		`{`: false,
	} {
		_, err := readSeat(&leaderelection.RaceEntry{LeaderID: "a", ConnectionParams: []byte(text)})
		if (err == nil) != fits || err != nil && !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Owned has what may be acted on now, in the order of the shards.
func TestOwnedIsWhatMayBeActedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, read := seated(t)
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

// Two members under one name are two members.
func TestTwoOfOneName(t *testing.T) {
	play(t, func(g *group) {
		for _, id := range []string{"a", "b"} {
			g.join(id, func(c *Config) { c.MemberID = "same" })
		}
		g.settles(12, 2*T)
	})
}

// Members that start at once, and so want the same seat, find another each, without waiting.
func TestSeatsAreTaken(t *testing.T) {
	both(t, func(g *group) {
		for i := range 5 {
			g.join(fmt.Sprint("m", i))
		}
		time.Sleep(T / 4)
		seats := map[int]string{}
		for _, p := range g.all() {
			s := p.member.Session()
			if other, taken := seats[s.Seat]; s == (SessionID{}) || taken {
				g.t.Errorf("%s has %v, %s too", p.id, s, other)
			}
			seats[s.Seat] = p.id
		}
	})
}

// A seat that looked free, and whose member has extended it after all, is given up for another.
func TestSeatThatIsExtendedAfterAll(t *testing.T) {
	play(t, func(g *group) {
		info, err := json.Marshal((&Member{cfg: Config{MemberID: "slow", Weight: 1}}).info())
		if err != nil {
			t.Fatal(err)
		}
		e := &leaderelection.RaceEntry{LeaderID: "slow#1", Incarnation: "slow", ElectionNumber: 3, ConnectionParams: info, TermLength: T, TermExpiry: time.Now().Add(-2 * S)}
		seat := g.record(seatName(0))
		seat.Replace(e)
		a := g.join("a")
		a.suffer(memory.Fail(memory.ErrLost).On(memory.Write))
		time.Sleep(time.Second)
		e.Extension, e.TermLength, e.TermExpiry = 1, time.Hour, time.Now().Add(time.Hour)
		seat.Replace(e)
		a.heal()
		time.Sleep(T)
		if s := a.member.Session(); s.Seat != 1 {
			t.Errorf("it has %v", s)
		}
	})
}

// What was asked for and is freed with nobody to have it is not asked for any more.
func TestRule03FreedOfNobody(t *testing.T) {
	d := newDesk(t, 4)
	d.sits(0, 1, 0, nil)
	d.next()
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

// A session that seems to be over, and owns nothing, is named by no new assignment.
func TestLapsedSessionsAreNotNamed(t *testing.T) {
	d := newDesk(t, 4)
	d.sits(0, 1, 0, nil)
	d.next()
	d.sits(1, 1, 0, nil)
	d.lapses(1)
	if d.next() {
		t.Errorf("named are %+v", d.a.sessions)
	}
}
