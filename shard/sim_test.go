//go:build go1.25

package shard

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

var seeds = flag.Int("seeds", 10, "how many groups TestGroups draws")

// TestGroups plays groups by seed: members that are cut off, lose requests and answers,
// hang, write late, leave and come back under their old name, linger in their callbacks,
// have clocks that are off, read late, are cut off for good and started again under their
// old name, are asked off their seat or from coordinating; feeds that tell of what is undone; two
// coordinators at once, one of them frozen between its read and its write.
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
		g.bury()
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
	switch rng.IntN(14) {
	case 0:
		if len(all) > 1 {
			p.heal()
			p.leave()
		}
	case 1: // a second coordinator, beside the one that was elected
		if s := p.member.Session(); s != (SessionID{}) {
			p.coordinateToo(time.Duration(rng.Int64N(int64(T))), func() bool { return true })
		}
	case 2: // and one that is frozen between its read and its write
		if s := p.member.Session(); s != (SessionID{}) {
			frozen := time.Duration(rng.Int64N(int64(2 * T)))
			p.coordinateToo(3*T, func() bool {
				time.Sleep(frozen)
				return true
			})
		}
	case 3: // its reads lag behind
		p.lags.Store(true)
	case 4: // cut off for good, and started again
		p.cut()
		g.hide(p)
		g.zombies = append(g.zombies, p)
		var k int
		_, _ = fmt.Sscanf(p.id, "m%d", &k)
		join(k)
	case 5: // an operator wants it off its seat, or another coordinator
		name := coordinatorName
		if s := p.member.Session(); s != (SessionID{}) && rng.IntN(2) == 0 {
			name = seatName(s.Seat)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = leaderelection.StepDown(ctx, g.record(name).Handle(), false) // there may be nobody to ask
		cancel()
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
func (p *player) coordinateToo(d time.Duration, leads func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	p.g.wg.Add(1)
	go func() {
		defer p.g.wg.Done()
		defer cancel()
		newCoordinator(p.member, ctx, leads, func([]string, []byte) error { return nil }).run()
	}()
}

// bury has those leave that were cut off for good. They do as if they were back, for a while.
func (g *group) bury() {
	for _, p := range g.zombies {
		p.heal()
		if err := p.member.Leave(context.Background()); err != nil {
			g.t.Error(err)
		}
	}
	g.zombies = nil
}

// laggard is a store whose reads may lag behind, as those of a replica.
type laggard struct {
	leaderelection.RaceDecider
	lags *atomic.Bool

	mu  sync.Mutex
	old *leaderelection.RaceEntry
}

func (l *laggard) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := l.RaceDecider.ReadCurrent(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !l.lags.Load():
		l.old = nil
	case l.old == nil:
		l.old = e.Clone()
	default:
		return l.old.Clone(), nil
	}
	return e, nil
}

// pushing is one that pushes.
type pushing struct {
	laggard
	leaderelection.ChangeFeed
}

// Inject is the store's own, for tests that wrap what they are given.
func (p *pushing) Inject(f memory.Faults) { p.ChangeFeed.(*memory.Decider).Inject(f) }

// A rolling restart moves each shard twice at most, and leaves none without an owner for
// longer than its hand-over takes.
func TestRollingRestart(t *testing.T) {
	play(t, func(g *group) {
		const members, shards = 5, 40
		change := func(c *Config) { c.Shards, c.MaxMoving = Numbered(shards), 1000 }
		for k := range members {
			g.join(fmt.Sprint("m", k), change)
		}
		g.settles(shards, time.Minute)
		time.Sleep(2 * T)
		g.moved()
		g.mu.Lock()
		clear(g.since)
		g.idle = 0
		g.mu.Unlock()
		for k := range members {
			g.all()[0].leave() // the names are in order, and so each is once
			g.join(fmt.Sprint("n", k), change)
			g.settles(shards, 2*T)
			time.Sleep(T)
		}
		n := g.moved()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.t.Logf("%d moves of %d shards, none without an owner for longer than %v", n, shards, g.idle)
		if n > 2*shards {
			g.t.Errorf("%d moves of %d shards", n, shards)
		}
		if g.idle > 2*time.Second {
			g.t.Errorf("a shard had no owner for %v", g.idle)
		}
	})
}

// One that joins gets what balance needs, by as many moves, no shard twice, and the
// assignment is written a few times only.
func TestJoinMovesTheFewest(t *testing.T) {
	play(t, func(g *group) {
		const members, shards = 9, 900
		g.every.Store(int64(time.Second))
		change := func(c *Config) { c.Shards, c.MaxMoving = Numbered(shards), 1000 }
		for k := range members {
			g.join(fmt.Sprint("m", k), change)
		}
		g.settles(shards, time.Minute)
		time.Sleep(2 * T)
		g.moved()
		before := maps.Clone(g.tokens)
		g.join("m9", change)
		g.settles(shards, time.Minute)
		time.Sleep(2 * T)
		if n := g.moved(); n != shards/(members+1) {
			t.Errorf("%d moves for one that joins", n)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, token := range g.tokens {
			if token > before[name]+1 {
				t.Errorf("shard %s moved %d times", name, token-before[name])
			}
		}
	})
}
