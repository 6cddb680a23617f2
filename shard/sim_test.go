//go:build go1.25

package shard

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/rules/mutants"
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
		_ = leaderelection.StepDown(ctx, g.Of(name).Handle(), false) // there may be nobody to ask
		cancel()
	default:
		p.suffer(faults[rng.IntN(len(faults))])
	}
}

func dice(op memory.Op, salt time.Duration) int {
	return int(time.Now().UnixNano()/997+int64(op.Kind)+int64(salt)) % 5
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

// Members share the shards evenly; one that joins gets what balance needs, and no shard
// moves for another reason; one that leaves gives all back.
func TestShare(t *testing.T) {
	both(t, func(g *group) {
		for _, id := range []string{"a", "b", "c"} {
			g.join(id)
		}
		took := g.settles(12, time.Minute)
		g.t.Logf("settled after %v: %v", took, g.counts())
		time.Sleep(time.Minute)
		g.moved()
		g.join("d")
		g.t.Logf("one more after %v: %v", g.settles(12, time.Minute), g.counts())
		time.Sleep(time.Minute)
		if n := g.moved(); n != 3 {
			g.t.Errorf("%d moves for one that joins three with 12 shards", n)
		}
		g.all()[0].leave()
		g.t.Logf("one less after %v: %v", g.settles(12, time.Minute), g.counts())
		time.Sleep(time.Minute)
		if n := g.moved(); n != 3 {
			g.t.Errorf("%d moves for one that leaves", n)
		}
	})
}

// What a member had that dies, or is cut off, others have within a term, the skew and a second;
// if it was the coordinator, a term later.
func TestCrash(t *testing.T) {
	both(t, func(g *group) {
		g.join("a")
		g.join("b")
		g.with("c")
		time.Sleep(time.Minute)
		for _, p := range g.all() {
			begin := time.Now()
			g.t.Logf("%s, session %v, is gone: settled after %v", p.id, p.member.Session(), g.without(p, 3*T))
			p.heal()
			g.settles(12, 3*T)
			time.Sleep(time.Minute - time.Since(begin)%time.Second)
		}
	})
}

// What a group costs the store depends on its members, not on its shards: at most 8
// operations a term for each member on a polled store, and 3 on one that pushes.
func TestCost(t *testing.T) {
	for _, shards := range []int{10, 1000} {
		both(t, func(g *group) {
			g.every.Store(int64(T))
			g.crowd(10, func(c *Config) { c.Shards, c.MaxMoving = Numbered(shards), 10000 })
			g.settles(shards, 10*time.Minute)
			time.Sleep(4 * T)
			const terms = 20
			before := g.operations()
			time.Sleep(terms * T)
			each := float64(g.operations()-before) / 10 / terms
			size := len(g.Of(assignmentName).Entry().ConnectionParams)
			g.t.Logf("%d shards, 10 members: %.2f operations a term for each member; the assignment takes %d bytes", shards, each, size)
			if most := map[bool]float64{false: 3, true: 8}[g.polled]; each > most {
				g.t.Errorf("more than %v", most)
			}
			if size > 200<<10 {
				g.t.Error("more than 200 KB")
			}
		})
	}
}

// A rolling restart moves each shard twice at most, and leaves none without an owner for
// longer than its hand-over takes.
func TestRollingRestart(t *testing.T) {
	play(t, func(g *group) {
		const members, shards = 5, 40
		change := func(c *Config) { c.Shards, c.MaxMoving = Numbered(shards), 1000 }
		g.crowd(members, change)
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

// Members that start at once, and so want the same seat, find another each, without waiting, and without
// looking at all of them again and again.
func TestJoiningIsNotQuadratic(t *testing.T) {
	play(t, func(g *group) {
		const members = 30
		g.every.Store(int64(time.Second))
		g.crowd(members, func(c *Config) { c.Shards = Numbered(60) })
		if took := g.settles(60, time.Minute); took > T {
			t.Errorf("they have their shards after %v", took)
		}
		if asked := g.operations(); asked > 1500 {
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
		g.crowd(1, of)
		g.settles(shards, time.Minute)
		g.crowd(5, of)
		if took := g.settles(shards, 3*time.Minute); took > 40*time.Second {
			t.Errorf("%v", took)
		} else {
			t.Log(took)
		}
	})
}

// Members that start within a moment are waited for before anything is given out: hardly a shard
// begins twice.
func TestColdStartBeginsEachShardOnce(t *testing.T) {
	both(t, func(g *group) {
		const members, shards = 10, 200
		g.crowd(members, func(c *Config) { c.Shards = Numbered(shards) })
		g.settles(shards, time.Minute)
		time.Sleep(2 * T)
		if n := g.moved(); n > shards/10 {
			g.t.Errorf("%d of %d shards moved", n, shards)
		} else {
			g.t.Logf("%d moves", n)
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
			g.restarts(40, 0, most, func(*player, int) { time.Sleep(away) })
		})
	}
}

// The moment begins when a member has left, however long its OnOwned took to return. (It has one
// shard. Of several, those that it lets go before the last do not wait.)
func TestSlowlyDrainedMembersAreHeirs(t *testing.T) {
	both(t, func(g *group) {
		for _, drain := range []time.Duration{3 * S, 10 * S} {
			g.restarts(5, drain, 0, func(*player, int) {})
		}
	})
}

// No shard moves either if the coordinator must poll, and reads the seat just while it is vacant.
func TestPollSeesARestart(t *testing.T) {
	for shards, drain := range map[int]time.Duration{40: 0, 5: 10 * S} {
		play(t, func(g *group) {
			g.polled = true
			g.restarts(shards, drain, 0, func(coordinator *player, seat int) {
				looks := make(chan struct{}, 100)
				g.mu.Lock()
				g.reads = func(by *player, name string) {
					if by == coordinator && name == seatName(seat) {
						looks <- struct{}{}
					}
				}
				g.mu.Unlock()
				<-looks
				time.Sleep(g.rtt)
			})
		})
	}
}

// restarts has one of five members leave, which takes as long as drain, and come back when away has
// returned, which gets the coordinator and the seat. At most so many shards may move as most says.
// The member does not coordinate: a coordinator that leaves frees its own shards before its
// successor knows of them.
func (g *group) restarts(shards int, drain time.Duration, most int, away func(coordinator *player, seat int)) {
	of := func(c *Config) { c.Shards = Numbered(shards) }
	g.crowd(5, of)
	g.settles(shards, time.Minute)
	time.Sleep(2 * T)
	before := map[string][]string{}
	for _, p := range g.all() {
		before[p.id] = names(p)
	}
	g.moved()
	coordinator, p := g.all()[0], g.all()[1]
	if leads := memberOf(g.Of(coordinatorName).Entry().LeaderID); leads == p.id {
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

// mortal is a process's leaderelection.Lifeline. Files has the ctx of each process of its machine, by the
// incarnations of its campaigns.
type mortal struct {
	files *sync.Map
	ctx   context.Context // ends with it
}

func (l *mortal) Live(name string) error {
	l.files.LoadOrStore(name, l.ctx)
	return nil
}

func (l *mortal) End(name string) error {
	if l.ctx.Err() == nil {
		l.files.Delete(name)
	}
	return nil
}

func (l *mortal) Dead(name string) bool {
	ctx, ok := l.files.Load(name)
	return ok && ctx.(context.Context).Err() != nil
}

func (l *mortal) OnDeath(name string, tell func()) (stop func()) {
	ctx, ok := l.files.Load(name)
	if !ok {
		return func() {}
	}
	end := context.AfterFunc(ctx.(context.Context), tell)
	return func() { end() }
}

func (l *mortal) Bury(string) error { return nil }

// A member whose process dies, the coordinator or another, costs its shards no term if its machine
// has another member that coordinates, or will: on a polled store they take as long as the members
// take to read the new assignment. One that is only cut off is waited for.
func TestLifelineOfAMember(t *testing.T) {
	both(t, func(g *group) {
		var files sync.Map
		end := map[string]func(){}
		for _, id := range []string{"a", "b", "c", "d"} {
			line := &mortal{files: &files}
			line.ctx, end[id] = context.WithCancel(g.t.Context())
			g.join(id, func(c *Config) { c.Lifeline = line })
		}
		soon := time.Second
		if g.polled {
			soon += T / 2 // PollInterval
		}
		g.settles(12, time.Minute)
		time.Sleep(time.Minute)
		for _, p := range g.all()[:2] {
			g.dies(p)
			g.zombies = append(g.zombies, p)
			end[p.id]()
			if took := g.settles(12, 3*T); took > soon {
				g.t.Errorf("%s is dead: settled after %v", p.id, took)
			} else {
				g.t.Logf("%s is dead: settled after %v", p.id, took)
			}
			time.Sleep(time.Minute)
		}
		p := g.all()[0]
		if took := g.without(p, 3*T); took < soon { // it lives, and acts on for its view
			g.t.Errorf("%s is cut off: settled after %v", p.id, took)
		}
		p.heal()
	})
}

// Rule 13: no key has two owners while members are replaced by such with another number of
// shards, whoever coordinates; and nobody is given shards of a number that it does not know.
func TestRule13OneOwnerOfAKey(t *testing.T) {
	both(t, func(g *group) {
		of := func(n int) func(*Config) {
			return func(c *Config) {
				own := c.OnOwned
				c.Shards, c.OnOwned = Numbered(n), func(ctx context.Context, o *Owned) error {
					if o.Of() != n {
						g.t.Errorf("a member of %d shards is given one of %d", n, o.Of())
					}
					return own(ctx, o)
				}
			}
		}
		keys := make([]string, 50)
		for i := range keys {
			keys[i] = fmt.Sprint("customer ", i)
		}
		ctx, cancel := context.WithCancel(context.Background())
		judged := make(chan struct{})
		go func() {
			defer close(judged)
			for ctx.Err() == nil {
				owners := map[string]*Owned{}
				for _, p := range g.all() {
					for _, o := range p.member.Owned() {
						for _, key := range keys {
							if fmt.Sprint(ForKey(key, o.Of())) != o.Name() {
								continue
							}
							if other := owners[key]; other != nil {
								g.t.Errorf("%s has two owners: shard %s of %d, and %s of %d", key, o.Name(), o.Of(), other.Name(), other.Of())
								return
							}
							owners[key] = o
						}
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		for _, id := range []string{"a", "b", "c"} {
			g.join(id, of(4))
		}
		g.settles(4, time.Minute)
		for i, id := range []string{"d", "e", "f"} {
			g.join(id, of(9))
			time.Sleep(time.Minute)
			g.all()[0].leave()
			time.Sleep(time.Minute)
			if a := g.all()[0].member.Assignment(); i == 2 && (a.Len() != 9 || a.Of() != 9 || a.Version() == leaderelection.NoElections) {
				g.t.Errorf("there are %d shards when all members know 9", a.Len())
			}
		}
		g.settles(9, time.Minute)
		cancel()
		<-judged
	})
}

var here = mutants.Package{Code: []string{"."}, Tests: []string{"."}}

// TestMutants builds each mutant, and runs the test that must notice it.
func TestMutants(t *testing.T) { here.Run(t, planted) }

// TestEveryMutantHasItsPlace finds the mutants that were left behind when the code changed.
func TestEveryMutantHasItsPlace(t *testing.T) { here.Check(t, planted) }

type change = mutants.Edit

// planted are this package with one mistake in it each, and the test that must see it.
var planted = []mutants.Mutant{
	{Name: "rule 1: a token that was let go is owned again", Edit: change{"case p.token <= s.floor[name] || o", "case o"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: shards of an earlier session are owned", Edit: change{"return s.SessionID == id })", "return s.Seat == id.Seat })"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: what is named no more is owned still", Edit: change{"		s.drop(o, ErrMoved)\n	}\n	for _, i := range fresh", "		_ = o\n	}\n	for _, i := range fresh"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: asked before it was owned, and owned then", Edit: change{"			s.floor[name] = p.token\n			letGo", "			letGo"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: a greater token is taken for the one that is owned", Edit: change{"case o != nil && o.token == p.token:", "case o != nil && o.token <= p.token:"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: a smaller token than the one that is owned is owned", Edit: change{" || o != nil && p.token < o.token:", ":"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "rule 1: what was let go is forgotten over an older token", Edit: change{"s.floor[o.name] = max(s.floor[o.name], o.token)", "s.floor[o.name] = o.token"}, CaughtBy: "TestRule01", Slow: true},
	{Name: "told while it reads, and not read again", Edit: change{"			timer.Reset(wait)\n			select", "			timer.Reset(wait)\n			f.look = make(chan struct{}, 1)\n			select"}, CaughtBy: "TestToldWhile", Slow: true},
	{Name: "rule 2: an older assignment is news", Edit: change{"r.a.version < known.version || ", ""}, CaughtBy: "TestRule02", Slow: true},
	{Name: "rule 3: a session that has lapsed is taken for ended", Edit: change{"return s != nil && s.over >= id.Number", "return s != nil && (s.over >= id.Number || s.lapsed)"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "a release that is heard without what came before it is not waited after", Edit: change{"		s.info, s.broken = nil, nil\n		return matters\n", "		return matters\n"}, CaughtBy: "TestReleaseThatIs", Slow: true},
	{Name: "rule 3: a session that has ended is alive again", Edit: change{"	}\n	s.over = max(s.over, over)\n", "	}\n	s.over = over\n"}, CaughtBy: "TestFacts", Slow: true},
	{Name: "rule 3: letting go of an older token is enough", Edit: change{"s.info.LetGo[shard] >= token", "s.info.LetGo[shard] > 0"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "rule 3: pushed records of unknown sessions are facts", Edit: change{"if w.last != nil && sameSession(e, w.last) {", "if true {"}, CaughtBy: "TestRule03Undone", Slow: true},
	{Name: "rule 4: the token stays", Edit: change{"placed{n.session[to], p.token + 1, false}", "placed{n.session[to], max(p.token, 1), false}"}, CaughtBy: "TestRule04|TestShare", Slow: true},
	{Name: "rule 5: said before the view has ended", Edit: change{"\to.over.Store(true)\n\to.cancel(cause)\n", "\to.cancel(cause)\n"}, CaughtBy: "TestRule05|TestShare", Slow: true},
	{Name: "rule 5: not drained", Edit: change{"o.drainBy = time.Now().Add(s.m.cfg.DrainTimeout)", "o.drainBy = time.Now()"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 5: drained anew by each assignment", Edit: change{"if p.releasing && o.drainBy.IsZero() {", "if p.releasing {"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 9: seats are not sealed", Edit: change{"if !s.lapsed || s.entry.Vacant() || s.sealing != nil {", "if true {"}, CaughtBy: "TestRule09", Slow: true},
	{Name: "rule 9: a seat is sealed once and never again", Edit: change{"		s.sealing = nil\n", ""}, CaughtBy: "TestRule09", Slow: true},
	{Name: "told of the same again, and alive again", Edit: change{"	if e.Compare(known) <= 0 {", "	if e.Compare(known) < 0 {"}, CaughtBy: "TestFacts", Slow: true},
	{Name: "a term that is not compared with clocks seems over though extended", Edit: change{"	if w.last == nil || w.last.Compare(e) != 0 {\n		w.since", "	if w.last == nil {\n		w.since"}, CaughtBy: "TestLapses", Slow: true},
	{Name: "a watch that was refused is not taken up again", Edit: change{"failed(err)\n			sleep(ctx, pause)\n", "failed(err)\n			return\n"}, CaughtBy: "TestRecordsThat", Slow: true},
	{Name: "an assignment is written without its condition", Edit: change{"			next.token = c.empty\n", ""}, CaughtBy: "TestWritesAre", Slow: true},
	{Name: "rule 11: what was let go is said for ever", Edit: change{"\tletGo := map[string]uint64{}\n\tvar fresh", "\tletGo := s.letGo\n\tvar fresh"}, CaughtBy: "TestRule05", Slow: true},
	{Name: "rule 11: more is said than fits", Edit: change{"room < 0 && len(said) > 0", "room < 0 && len(said) < 0"}, CaughtBy: "TestRule11", Slow: true},
	{Name: "a Store that has failed for a seat is not asked again", Edit: change{"			sleep(c.ctx, c.m.cfg.TermLength/2)\n", "			return\n"}, CaughtBy: "TestStoreFails", Slow: true},
	{Name: "a Store that hangs is called again", Edit: change{"		s.opening[name] = o\n", ""}, CaughtBy: "TestStoreIsCalledOnce", Slow: true},
	{Name: "rule 12: two contents of one version", Edit: change{"case known != nil && r.a.version == known.version:", "case false:"}, CaughtBy: "TestRule12TwoContents", Slow: true},
	{Name: "rule 12: what the store has lost is not written again", Edit: change{"restored.token, restored.restored = token, true", "restored = read"}, CaughtBy: "TestRule12SetBack", Slow: true},
	{Name: "a reset forgets the tokens of shards", Edit: change{"token: max(p.token, after, born)}", "token: max(0*p.token, after, born)}"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset forgets the tokens of shards that are gone", Edit: change{"max(a.retired, after, born)", "max(a.retired, born)"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset writes an older version", Edit: change{"max(e.ElectionNumber, leaderelection.ElectionNumber(born))+1", "e.ElectionNumber+1"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset while a member's term runs", Edit: change{"!used && k >= named {", "used || k >= named {"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset where seats were deleted under a member", Edit: change{"s.isFree(ctx, coordinatorName)", "s.isFree(ctx, seatName(0))"}, CaughtBy: "TestReset", Slow: true},
	{Name: "a reset over an election's record", Edit: change{"case !e.Vacant():\n\t\treturn unclear", "case false:\n\t\treturn unclear"}, CaughtBy: "TestReset", Slow: true},
	{Name: "the plan ignores who has what", Edit: change{"return keepsI\n", "return keepsJ\n"}, CaughtBy: "TestPlan", Slow: true},
	{Name: "a full member is given more", Edit: change{"return c > 0 && has >= c", "return c > 0 && has > c"}, CaughtBy: "TestCapacity", Slow: true},
	{Name: "what waits for a full member for good is not homeless", Edit: change{"		if moving[i] == 0 {", "		if false && moving[i] == 0 {"}, CaughtBy: "TestCapacity", Slow: true},
	{Name: "calls that hang pile up", Edit: change{"if s.calls[name] >= maxCalls {", "if false {"}, CaughtBy: "TestHangingCalls", Slow: true},
	{Name: "seats of one record have no end", Edit: change{"twice && other != k", "twice && other < 0"}, CaughtBy: "TestOneRecord", Slow: true},
	{Name: "the plan ignores capacity", Edit: change{"members[i].fits(load[i])", "(members[i].fits(load[i]) || i >= 0)"}, CaughtBy: "TestPlanLimits", Slow: true},
	{Name: "rule 3: whoever is asked has let go", Edit: change{"case n.facts.ended(s.SessionID):", "case p.releasing || n.facts.ended(s.SessionID):"}, CaughtBy: "TestRule03", Slow: true},
	{Name: "rule 4: tokens of shards that are gone are forgotten", Edit: change{"			} else {\n				a.retired = max(a.retired, p.token)", "			} else {"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: the last token of those that are gone counts", Edit: change{"			} else {\n				a.retired = max(a.retired, p.token)", "			} else {\n				a.retired = p.token"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: a shard that is to go, goes though it is owned", Edit: change{"if p.session != none {\n				held", "if false {\n				held"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 4: tokens of a record that is not there begin at 1", Edit: change{"a = &assignment{retired: uint64(born)}", "a = &assignment{}"}, CaughtBy: "TestRule04", Slow: true},
	{Name: "rule 6: no view to drain with", Edit: change{"for i, o := range s.owned { // their ctx has ended with the session's\n", "for i, o := range s.owned {\n		o.over.Store(true)\n"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: left while a callback runs", Edit: change{"return s.leaving && (!s", "return s.leaving || (s.leaving && !s"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: acted on when its callback has returned", Edit: change{"		s.settle(o.index, o)\n	}\n	s.m.mu.Lock()", "	}\n	s.m.mu.Lock()"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 5: let go while a request runs", Edit: change{"return o.running || o.inside.Load() != shutBit", "return o.running"}, CaughtBy: "TestRule05Request", Slow: true},
	{Name: "rule 5: requests enter what is to be let go", Edit: change{"	o.shut()\n	o.drainBy", "	o.drainBy"}, CaughtBy: "TestRule05Request", Slow: true},
	{Name: "rule 6: what is given to a member that leaves is owned", Edit: change{"case p.releasing || s.leaving:", "case p.releasing:"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 6: a member that leaves is given more", Edit: change{"info.Leaving || info.Numbered", "info.Numbered"}, CaughtBy: "TestRule06", Slow: true},
	{Name: "rule 7: a session that has ended waits for its callbacks", Edit: change{"(!s.view.ValueInFuture() || len", "(len"}, CaughtBy: "TestStuck", Slow: true},
	{Name: "rule 13: two numberings at a time", Edit: change{"		if n.renumber {\n			return\n		}\n", ""}, CaughtBy: "TestRule13", Slow: true},
	{Name: "rule 13: tokens of another numbering are forgotten", Edit: change{"			n.renumber = n.renumber || p.session != none\n			a.retired = max(a.retired, p.token)\n", "			n.renumber = n.renumber || p.session != none\n"}, CaughtBy: "TestRule13", Slow: true},
	{Name: "rule 13: given to a member that does not know the number", Edit: change{" || info.Numbered != n.next.shards.numbered", ""}, CaughtBy: "TestRule13", Slow: true},
	{Name: "two callbacks of one shard", Edit: change{"		return // never two callbacks of one shard: ended begins it\n", ""}, CaughtBy: "TestOneCallback", Slow: true},
	{Name: "a member believes a read that lags", Edit: change{"f.newest.Load() >= f.told.Load()", "f.told.Load() >= 0"}, CaughtBy: "TestMembersRead", Slow: true},
	{Name: "what was reported is not remembered until a read shows it", Edit: change{" && !f.told.CompareAndSwap(told, uint64(version));", " && version == 0;"}, CaughtBy: "TestMembersRead", Slow: true},
	{Name: "a failure is none", Edit: change{"info.Failed[name] != \"\"", "false"}, CaughtBy: "TestFailed", Slow: true},
	{Name: "a failure is for ever", Edit: change{"if wait := f.Until.Sub(n.now); wait > 0 {", "if wait := f.Until.Sub(n.now); true {"}, CaughtBy: "TestFailedShardsWait", Slow: true},
	{Name: "shards move with the polls", Edit: change{"f.moving > 0 && a.moves()", "f.moving > 0 && a == nil"}, CaughtBy: "TestHurries", Slow: true},
	{Name: "the coordinator polls as ever while shards move", Edit: change{"return hurried(cfg.TermLength) case", "return cfg.TermLength\n	case"}, CaughtBy: "TestMovesOn", Slow: true},
	{Name: "the coordinator polls as ever while a member may be back", Edit: change{"asked[k] || c.settling() && (s.info == nil || s.info.Leaving)", "asked[k]"}, CaughtBy: "TestPollSeesARestart", Slow: true},
	{Name: "a member that took long to leave has no heir", Edit: change{"s.info.Leaving && !before.Leaving); (came", "s.info.Leaving) && !before.Leaving; (came"}, CaughtBy: "TestSlowlyDrained", Slow: true},
	{Name: "a request for another numbering is served", Edit: change{"(o.of == 0 || unqualified(name, o.of) != number)", "false"}, CaughtBy: "TestKeyName"},
	{Name: "what is over may be acted on", Edit: change{"return o, o != nil && o.ValueInFuture()", "return o, o != nil"}, CaughtBy: "TestOwnedIs", Slow: true},
}
