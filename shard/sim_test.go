//go:build go1.25

package shard

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var seeds = flag.Int("seeds", 10, "how many groups TestGroups draws")

// TestGroups plays groups by seed: members that are cut off, lose requests and answers,
// hang, write late, leave and come back under their old name, linger in their callbacks,
// have clocks that are off; feeds that tell of what is undone; two coordinators at once.
// The judge sees that no shard is owned twice, and that tokens grow. In the end it is calm:
// then all shards are owned, evenly, soon, and none moves any more.
func TestGroups(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playSeed(t, uint64(seed)) })
	}
}

func playSeed(t *testing.T, seed uint64) {
	play(t, func(g *group) {
		rng := rand.New(rand.NewPCG(seed, 14))
		g.polled = rng.IntN(3) == 0
		shards, names := 1+rng.IntN(15), 2+rng.IntN(4)
		change := func(c *Config) {
			c.Shards = Numbered(shards)
			c.MaxMoving = 1 + rng.IntN(4)
			c.DrainTimeout = time.Duration(1+rng.IntN(20)) * time.Second
			c.Clock = clocks.NewOffset(nil, time.Duration(rng.Int64N(int64(2*S)))-S)
		}
		join := func(k int) {
			p := g.join(fmt.Sprint("m", k), change)
			p.linger.Store(int64(rng.IntN(3)) * int64(rng.IntN(5000)) * int64(time.Millisecond))
		}
		for k := range names {
			join(k)
		}
		for range 12 + rng.IntN(12) {
			time.Sleep(time.Duration(rng.Int64N(int64(2 * T))))
			g.befall(rng, names, join)
		}
		for _, p := range g.all() {
			p.heal()
		}
		time.Sleep(2 * T) // what was lost before may yet cost a session
		took := g.settles(shards, 8*T)
		g.moved()
		time.Sleep(2 * T)
		if n := g.moved(); n > 0 {
			g.t.Errorf("%d shards move when all is calm", n)
		}
		g.t.Logf("%d members, %d shards, calm after %v: %v", len(g.all()), shards, took, g.counts())
	})
}

// befall has something happen to a member, or to the group.
func (g *group) befall(rng *rand.Rand, names int, join func(int)) {
	all := g.all()
	if len(all) == 0 || len(all) < names && rng.IntN(3) == 0 {
		for k := range names {
			if !g.has(fmt.Sprint("m", k)) {
				join(k)
				return
			}
		}
	}
	p := all[rng.IntN(len(all))]
	lost := memory.ErrLost
	late := time.Duration(rng.Int64N(int64(2 * T)))
	faults := []memory.Faults{
		nil, nil, nil,
		memory.LoseRequests(),
		memory.LoseAnswers(),
		memory.Slow(time.Duration(rng.Int64N(int64(4 * time.Second)))),
		memory.Undo(time.Second).On(memory.Write),
		// A write that arrives long after it was given up: of a coordinator that was
		// frozen between its read and its write, say.
		memory.Always(memory.Fault{Err: lost, Late: late}).On(memory.Write),
		func(op memory.Op) memory.Fault { // some of everything
			switch fault := (memory.Fault{}); dice(op, late) {
			case 0:
				return memory.Fault{Err: lost}
			case 1:
				return memory.Fault{Err: lost, Lands: true}
			case 2:
				return memory.Fault{Delay: late / 4}
			default:
				return fault
			}
		},
	}
	switch rng.IntN(10) {
	case 0:
		if len(all) > 1 {
			p.heal()
			p.leave()
		}
	case 1: // a second coordinator, beside the one that was elected
		if s := p.member.Session(); s != (SessionID{}) {
			p.coordinateToo(time.Duration(rng.Int64N(int64(T))))
		}
	default:
		p.suffer(faults[rng.IntN(len(faults))])
	}
}

func dice(op memory.Op, salt time.Duration) int {
	return int(time.Now().UnixNano()/997+int64(op.Kind)+int64(salt)) % 5
}

func (g *group) has(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[id] != nil
}

// coordinateToo has a member coordinate for a while, elected or not.
func (p *player) coordinateToo(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	p.g.wg.Add(1)
	go func() {
		defer p.g.wg.Done()
		defer cancel()
		newCoordinator(p.member, ctx, func() bool { return true }, func([]string, []byte) error { return nil }).run()
	}()
}
