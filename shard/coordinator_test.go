//go:build go1.25

package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
)

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

// version is the Token of a store that knows what it has not got.
type version string

func (version) CommitTS() time.Time { return time.Time{} }

// keeper is a store that takes a write only with the Token that was read.
type keeper struct {
	at     version
	writes int
}

func (k *keeper) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) {
	return &leaderelection.RaceEntry{Token: k.at}, nil
}

func (k *keeper) WriteEntry(_ context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if e.Token != k.at {
		return nil, leaderelection.ErrLostRace
	}
	k.writes++
	k.at += "+"
	return k.at, nil
}

// The first assignment is written on the condition that there is none, and each next one on
// that of the one before.
func TestWritesAreConditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, 2)
		c := bench(t, d, func([]string, []byte) error { return nil })
		k := &keeper{at: "none"}
		c.assignment = k
		d.sits(0, 1, 0, nil)
		d.learn(1, &leaderelection.RaceEntry{}, false)
		for range 2 {
			if _, err := c.round(); err != nil {
				t.Error(err)
			}
		}
		d.vacant(0, 1)
		if _, err := c.round(); err != nil || k.writes != 2 || uint64(c.known.version) != uint64(time.Now().Unix())+1 {
			t.Errorf("%v; %d writes, version %d", err, k.writes, c.known.version)
		}
	})
}

// Rule 9: a seat whose members die one after the other is sealed each time, and once.
func TestRule09EachTime(t *testing.T) {
	both(t, func(g *group) {
		var said said
		g.join("a", func(c *Config) { c.Logger = said.logger() })
		g.settles(12, time.Minute)
		b := g.join("b")
		for n := 1; n <= 3; n++ {
			g.settles(12, 2*T)
			b.cut()
			g.hide(b)
			g.settles(12, 4*T)
			b.heal()
			g.show(b)
			if seals := strings.Count(said.String(), "seals a seat"); seals != n {
				g.t.Errorf("it was sealed %d times for %d deaths", seals, n)
			}
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
