//go:build unix

package proctest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// group is a test with real members of a group.
type group struct {
	testing.TB
	*candidacies
	o       GroupOptions
	dir     string
	rng     *rand.Rand
	proxies []*stores.Relay
	running []*fleet.Process // by slot; nil: nobody
	ledgers map[string]string
	healing []healing
	told    map[string]int // what has befallen them
}

// healing is what ends a fault.
type healing struct {
	slot int
	at   time.Time
	heal func()
}

// RunGroup has members of a group, each a process of its own, divide shards among them
// while they are killed and started again, stopped for a while, cut off from the store,
// leave and join. From what they did it checks that no shard has two owners at once, and that
// tokens grow. When all is calm again, all shards must be owned, evenly.
func RunGroup(t *testing.T, o GroupOptions) {
	t.Helper()
	stores.Nightly(t, "real processes elect by the wall clock")
	g := &group{TB: t, o: o.withDefaults(), candidacies: newCandidacies(), dir: t.TempDir(), ledgers: map[string]string{}, told: map[string]int{}}
	seed := rand.Uint64()
	g.rng = rand.New(rand.NewPCG(seed, 14))
	t.Logf("seed %d", seed) // of what befalls them: when that is, the machine has a say in
	g.running, g.proxies = make([]*fleet.Process, g.o.Members+1), relays(t, o.Upstream, g.o.Members+1)
	defer g.check() // also if the test ends half way
	for slot := range g.o.Members {
		g.join(slot)
	}
	g.settled("joined")
	g.trouble()
	for len(g.healing) > 0 {
		g.heal(g.healing[0].at)
	}
	for slot, p := range g.running { // as many as in the beginning
		if p == nil && g.members() < g.o.Members {
			g.join(slot)
		}
	}
	g.settled("calm")
	for slot, p := range g.running {
		if p != nil {
			g.leaves(slot)
		}
	}
}

func (o GroupOptions) withDefaults() GroupOptions {
	o.Members = cmp.Or(o.Members, 8)
	o.Shards = cmp.Or(o.Shards, 200)
	o.For = cmp.Or(o.For, 25*time.Second)
	o.Patience = cmp.Or(o.Patience, 3*time.Minute)
	return o
}

// members is how many there are.
func (g *group) members() (n int) {
	for _, p := range g.running {
		if p != nil {
			n++
		}
	}
	return n
}

// join starts the member of a slot. It has the same name each time.
func (g *group) join(slot int) {
	g.Helper()
	id := fmt.Sprint("member-", slot)
	name := fmt.Sprintf("%d (%s)", len(g.all)+1, id)
	g.ledgers[name] = filepath.Join(g.dir, fmt.Sprint(len(g.all)+1))
	g.running[slot] = g.start(g, name, role{
		ID: id, Address: g.o.Address, Offset: time.Duration(slot%3-1) * skew / 2,
		Group: &groupRole{Shards: g.o.Shards, Ledger: g.ledgers[name]},
	}, g.o.Env, g.o.Upstream, g.proxies[slot])
}

// trouble has one thing after another befall the members: each kind once, and then what
// comes.
func (g *group) trouble() {
	g.Helper()
	kinds := []string{"kill", "stop", "leave", "join"}
	if g.o.Upstream != "" {
		kinds = append(kinds, "cut off")
	}
	todo := slices.Clone(kinds)
	for end := time.Now().Add(g.o.For); time.Now().Before(end) || len(g.told) < len(kinds); {
		if len(todo) == 0 {
			todo = slices.Clone(kinds)
		}
		g.rng.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		g.befall(todo[0])
		todo = todo[1:]
		g.heal(time.Now().Add(time.Duration(g.rng.Int64N(int64(groupTerm)))))
	}
}

// heal lets time pass, and ends the faults that are over by then.
func (g *group) heal(until time.Time) {
	g.Helper()
	slices.SortFunc(g.healing, func(a, b healing) int { return a.at.Compare(b.at) })
	for len(g.healing) > 0 && !g.healing[0].at.After(until) {
		first := g.healing[0]
		g.healing = g.healing[1:]
		g.rest(time.Until(first.at))
		first.heal()
	}
	g.rest(time.Until(until))
}

func (g *group) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// well returns a slot whose member nothing befalls, or false where too few are left.
func (g *group) well() (int, bool) {
	var well []int
	for slot, p := range g.running {
		if p != nil && !g.troubled(slot) {
			well = append(well, slot)
		}
	}
	if len(well) <= g.o.Members/2 {
		return 0, false
	}
	return well[g.rng.IntN(len(well))], true
}

func (g *group) troubled(slot int) bool {
	return slices.ContainsFunc(g.healing, func(h healing) bool { return h.slot == slot })
}

// away are the slots that nobody has, or is to have again.
func (g *group) away() (slots []int) {
	for slot, p := range g.running {
		if p == nil && !g.troubled(slot) {
			slots = append(slots, slot)
		}
	}
	return slots
}

func (g *group) befall(kind string) {
	g.Helper()
	slot, ok := g.well()
	if !ok {
		return
	}
	p := g.running[slot]
	later := time.Now().Add(groupTerm/2 + time.Duration(g.rng.Int64N(int64(3*groupTerm/2))))
	switch kind {
	case "kill": // and started again, under its old name, at once or later
		p.Kill()
		g.running[slot] = nil
		if g.rng.IntN(2) == 0 {
			later = time.Now()
		}
		g.healing = append(g.healing, healing{slot, later, func() { g.join(slot) }})
	case "stop":
		signal(g, p, syscall.SIGSTOP)
		g.healing = append(g.healing, healing{slot, later, func() { signal(g, p, syscall.SIGCONT) }})
	case "cut off":
		if g.rng.IntN(2) == 0 {
			g.proxies[slot].Cut()
		} else {
			g.proxies[slot].Mute() // what it asks is done, and it is not told
		}
		g.healing = append(g.healing, healing{slot, later, g.proxies[slot].Heal})
	case "leave":
		if len(g.away()) > 1 {
			return
		}
		g.leaves(slot)
	case "join":
		away := g.away()
		if len(away) == 0 {
			return
		}
		g.join(away[0])
	}
	g.told[kind]++
}

// leaves has a member leave in order, and waits for its end.
func (g *group) leaves(slot int) {
	g.Helper()
	p := g.running[slot]
	g.running[slot] = nil
	g.leave(g, p, g.o.Patience)
}

// settled waits until all shards are owned, evenly.
func (g *group) settled(when string) {
	g.Helper()
	begin := time.Now()
	for {
		g.alive()
		now := time.Now()
		g.rest(10 * actAround)
		each, _ := counts(g.read(), now)
		err := balanced(each, g.o.Shards, g.members())
		if err == nil {
			g.Logf("%s: all is owned, evenly, after %v", when, now.Sub(begin).Round(time.Millisecond))
			return
		}
		if time.Since(begin) > g.o.Patience {
			maps.DeleteFunc(each, func(_ string, n int) bool { return n == 0 })
			g.Fatalf("%s: %v after %v", when, err, g.o.Patience)
		}
	}
}

// alive fails the test if a process has ended that nobody has ended.
func (g *group) alive() {
	g.Helper()
	g.Look(func(lines map[string][]line) {
		for _, p := range g.running {
			if p == nil {
				continue
			}
			for _, l := range lines[p.Name] {
				g.Fatalf("process %s has ended: %s %s", p.Name, l.Kind, l.Why)
			}
		}
	})
}

func (g *group) read() map[string][]ownership {
	g.Helper()
	all := map[string][]ownership{}
	for name, path := range g.ledgers {
		its, err := readLedger(path)
		if err != nil {
			g.Fatal(err)
		}
		all[name] = its
	}
	return all
}

// check holds what the processes did to the promise.
func (g *group) check() {
	g.Helper()
	for _, p := range g.running { // if the test has ended half way
		if p != nil {
			p.Kill()
		}
	}
	all := g.read()
	problems, idle := checkLedgers(all)
	for _, problem := range problems[:min(len(problems), 20)] {
		g.Error(problem)
	}
	n := 0
	for _, its := range all {
		n += len(its)
	}
	g.Logf("%d processes, %d ownerships, the longest time without an owner %v, %v, overlaps or old tokens: %d", len(g.all), n, idle.Round(time.Millisecond), g.told, len(problems))
	if g.Failed() {
		g.logs(g)
	}
}
