//go:build go1.25

package shard

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// Members that start at once find their seats without looking at all of them again and again.
func TestJoiningIsNotQuadratic(t *testing.T) {
	play(t, func(g *group) {
		const members = 30
		g.every.Store(int64(time.Second))
		for k := range members {
			g.join(fmt.Sprint("m", k), func(c *Config) { c.Shards = Numbered(60) })
		}
		g.settles(60, time.Minute)
		g.mu.Lock()
		defer g.mu.Unlock()
		asked := 0
		for _, n := range g.asked {
			asked += n
		}
		if t.Logf("%d operations: %v", asked, g.asked); asked > 1500 {
			t.Errorf("%d operations for %d members that start at once: %v", asked, members, g.asked)
		}
	})
}

// On a store that must be asked, shards move as fast as reads tell of it, not with the polls.
func TestMovesOnPolledStores(t *testing.T) {
	play(t, func(g *group) {
		g.polled = true
		const shards = 256
		of := func(c *Config) { c.Shards = Numbered(shards) }
		g.every.Store(int64(time.Second))
		g.join("m0", of)
		g.settles(shards, time.Minute)
		for k := range 4 {
			g.join(fmt.Sprint("m", k+1), of)
		}
		if took := g.settles(shards, 3*time.Minute); took > 40*time.Second {
			t.Errorf("%v", took)
		} else {
			t.Log(took)
		}
	})
}

// A member that is restarted under its MemberID, and does not coordinate, gets what it had, and
// nothing else moves. If it is back within a moment, its shards have had no other owner.
func TestRestartedMembersAreHeirs(t *testing.T) {
	for _, away := range []time.Duration{0, T / 2} {
		both(t, func(g *group) {
			most := 0
			if away > 0 {
				most = 2 * 8 // away, and back
			}
			g.restarts(40, 0, most, nil, func(*player, int) { time.Sleep(away) })
		})
	}
}

// The moment begins when a member has left, however long its OnOwned took to return. (It has one
// shard. Of several, those that it lets go before the last do not wait.)
func TestSlowlyDrainedMembersAreHeirs(t *testing.T) {
	both(t, func(g *group) {
		for _, drain := range []time.Duration{3 * S, 10 * S} {
			g.restarts(5, drain, 0, nil, func(*player, int) {})
		}
	})
}

// No shard moves either if the coordinator must poll, and reads the seat just while it is vacant.
func TestPollSeesARestart(t *testing.T) {
	for shards, drain := range map[int]time.Duration{40: 0, 5: 10 * S} {
		play(t, func(g *group) {
			g.polled = true
			type read struct {
				by, name string
				vacant   bool
			}
			reads := make(chan read)
			tells := func(c *Config) {
				store, id := c.Store, c.MemberID
				c.Store = func(name string) (leaderelection.RaceDecider, error) {
					d, err := store(name)
					return seen{d, func(e *leaderelection.RaceEntry) {
						select {
						case reads <- read{id, name, e.Vacant()}:
						default: // nobody waits for one
						}
					}}, err
				}
			}
			g.restarts(shards, drain, 0, tells, func(coordinator *player, seat int) {
				for (<-reads != read{coordinator.id, seatName(seat), true}) {
				}
			})
		})
	}
}

// seen is a store that tells of each read.
type seen struct {
	leaderelection.RaceDecider
	tell func(*leaderelection.RaceEntry)
}

func (s seen) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := s.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		s.tell(e)
	}
	return e, err
}

// restarts has one of five members leave, which takes as long as drain, and come back when away has
// returned, which gets the coordinator and the seat. At most so many shards may move as most says.
// The member does not coordinate: a coordinator that leaves frees its own shards before its
// successor knows of them.
func (g *group) restarts(shards int, drain time.Duration, most int, change func(*Config), away func(coordinator *player, seat int)) {
	of := func(c *Config) {
		if c.Shards = Numbered(shards); change != nil {
			change(c)
		}
	}
	for k := len(g.all()); k < 5; k++ {
		g.join(fmt.Sprint("m", k), of)
	}
	g.settles(shards, time.Minute)
	time.Sleep(2 * T)
	before := map[string][]string{}
	for _, p := range g.all() {
		before[p.id] = names(p)
	}
	g.moved()
	coordinator, p := g.all()[0], g.all()[1]
	if leads := memberOf(g.record(coordinatorName).Entry().LeaderID); leads == p.id {
		coordinator, p = p, coordinator
	} else {
		coordinator = g.members[leads]
	}
	p.linger.Store(int64(drain))
	seat := p.member.Session().Seat
	p.leave()
	away(coordinator, seat)
	g.join(p.id, of)
	g.settles(shards, time.Minute)
	time.Sleep(2 * T)
	if n := g.moved(); n > most {
		g.t.Errorf("drained for %v: %d moves, %d are needed", drain, n, most)
	}
	for _, p := range g.all() {
		if now := names(p); most == 0 && !slices.Equal(now, before[p.id]) {
			g.t.Errorf("drained for %v: %s has %v, and had %v", drain, p.id, now, before[p.id])
		}
	}
}

func names(p *player) (names []string) {
	for _, o := range p.member.Owned() {
		names = append(names, o.Name())
	}
	return names
}

// Members that start within a moment are waited for before anything is given out: hardly a shard
// begins twice.
func TestColdStartBeginsEachShardOnce(t *testing.T) {
	both(t, func(g *group) {
		const members, shards = 10, 200
		for k := range members {
			g.join(fmt.Sprint("m", k), func(c *Config) { c.Shards = Numbered(shards) })
		}
		g.settles(shards, time.Minute)
		time.Sleep(2 * T)
		if n := g.moved(); n > shards/10 {
			g.t.Errorf("%d of %d shards moved", n, shards)
		} else {
			g.t.Logf("%d moves", n)
		}
	})
}
