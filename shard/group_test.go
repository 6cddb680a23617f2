//go:build go1.25

package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/memgroup"
)

const (
	T = 15 * time.Second
	S = time.Second
)

// group is a group of members on stores in memory, and the judge of what they do.
type group struct {
	t      *testing.T
	polled bool
	rtt    time.Duration
	stop   context.CancelFunc
	wg     sync.WaitGroup
	every  atomic.Int64   // the time between two looks of the judge
	asked  map[string]int // reads and writes, by record

	memgroup.Records

	mu      sync.Mutex
	members map[string]*player
	reads   func(by *player, name string) // nil, or told of each read of a record
	zombies []*player                     // cut off for good, and started again elsewhere under their names
	owned   map[string][]*Owned           // of each shard: all that may still act
	tokens  map[string]uint64             // the greatest that each shard was acted on with
	owners  map[string]string             // who had it last
	moves   int                           // of shards from one to another
	since   map[string]time.Time          // of shards that nobody acts on
	idle    time.Duration                 // the longest that one was so
}

// player is one member, with its own connections.
type player struct {
	g        *group
	id       string
	member   *Member
	faults   atomic.Pointer[memory.Faults]
	running  map[string]int // callbacks of each shard
	linger   atomic.Int64   // how long a callback takes to end
	lags     atomic.Bool    // its reads show what the first one since showed
	returned chan error
}

// play runs f with a group, in virtual time, and ends all in order afterwards.
func play(t *testing.T, f func(g *group)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := &group{
			t: t, rtt: 5 * time.Millisecond, members: map[string]*player{},
			asked: map[string]int{}, owned: map[string][]*Owned{}, tokens: map[string]uint64{}, owners: map[string]string{}, since: map[string]time.Time{}, stop: cancel,
		}
		g.every.Store(int64(19 * time.Millisecond))
		judged := make(chan struct{})
		go func() {
			defer close(judged)
			for ctx.Err() == nil {
				g.judge()
				time.Sleep(time.Duration(g.every.Load()))
			}
		}()
		f(g)
		g.bury()
		for _, p := range g.all() {
			p.heal()
			p.leave()
		}
		g.wg.Wait()
		cancel()
		<-judged
	})
}

// both runs a test on stores that push, and on such that must be asked.
func both(t *testing.T, f func(g *group)) {
	for _, polled := range []bool{false, true} {
		t.Run(fmt.Sprintf("polled=%v", polled), func(t *testing.T) {
			play(t, func(g *group) {
				g.polled = polled
				f(g)
			})
		})
	}
}

// join starts a member.
func (g *group) join(id string, change ...func(*Config)) *player {
	p := &player{g: g, id: id, running: map[string]int{}, returned: make(chan error, 1)}
	cfg := Config{
		Store: func(name string) (leaderelection.RaceDecider, error) {
			d := g.Of(name).Handle()
			d.Inject(func(op memory.Op) memory.Fault {
				if op.Kind != memory.Feed {
					g.mu.Lock()
					g.asked[strings.TrimRight(name, "0123456789")+op.Kind.String()]++
					if op.Kind == memory.Read && g.reads != nil {
						g.reads(p, name)
					}
					g.mu.Unlock()
				}
				return p.slowly(op)
			})
			if g.polled {
				return &laggard{RaceDecider: d.Polled(), lags: &p.lags}, nil
			}
			return &pushing{laggard{RaceDecider: d, lags: &p.lags}, d}, nil
		},
		MemberID: id, Shards: Numbered(12), OnOwned: p.own, TermLength: T, MaxClockSkew: S, HostPort: []string{id + ":80"},
		Logger: slog.New(slog.DiscardHandler),
	}
	if os.Getenv("SHARD_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if p.member, err = cfg.Start(context.Background()); err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.members[id] = p
	g.mu.Unlock()
	return p
}

// crowd has members join until there are n: m0, m1 and so on.
func (g *group) crowd(n int, change ...func(*Config)) {
	for k := len(g.all()); k < n; k++ {
		g.join(fmt.Sprint("m", k), change...)
	}
}

// operations is how often the store was asked.
func (g *group) operations() (all int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.asked {
		all += n
	}
	return all
}

// with has a member join, and waits until all shards are shared out.
func (g *group) with(id string, change ...func(*Config)) *player {
	g.t.Helper()
	p := g.join(id, change...)
	g.settles(12, time.Minute)
	return p
}

// without cuts a member off until the others have all shards, and returns how long that took.
func (g *group) without(p *player, within time.Duration) time.Duration {
	g.t.Helper()
	p.cut()
	g.hide(p)
	defer g.show(p)
	return g.settles(12, within)
}

func (p *player) slowly(op memory.Op) memory.Fault {
	if f := p.faults.Load(); f != nil && *f != nil {
		return (*f)(op)
	}
	return memory.Slow(p.g.rtt / 2)(op)
}

func (p *player) suffer(f memory.Faults) { p.faults.Store(&f) }

// cut loses all that the member sends, as if it were dead to the others.
func (p *player) cut() { p.suffer(memory.LoseRequests()) }

func (p *player) heal() {
	p.lags.Store(false)
	p.suffer(nil)
}

func (p *player) leave() {
	if err := p.member.Leave(context.Background()); err != nil {
		p.g.t.Error(err)
	}
	p.g.mu.Lock()
	delete(p.g.members, p.id)
	p.g.mu.Unlock()
}

// own is OnOwned.
func (p *player) own(ctx context.Context, o *Owned) error {
	g := p.g
	g.mu.Lock()
	if p.running[o.name]++; p.running[o.name] > 1 {
		g.t.Errorf("%s has two callbacks of shard %s", p.id, o.name)
	}
	if o.token <= g.tokens[o.name] {
		g.t.Errorf("shard %s: %s gets token %d after %d", o.name, p.id, o.token, g.tokens[o.name])
	}
	g.tokens[o.name] = o.token
	if last := g.owners[o.name]; last != "" && last != p.id {
		g.moves++
	}
	g.owners[o.name] = p.id
	g.owned[o.name] = append(g.owned[o.name], o)
	g.mu.Unlock()
	g.judge()
	<-ctx.Done()
	time.Sleep(time.Duration(p.linger.Load()))
	g.mu.Lock()
	p.running[o.name]--
	g.mu.Unlock()
	return nil
}

// judge looks at every shard: who may act on it now?
func (g *group) judge() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, list := range g.owned {
		var acting []*Owned
		g.owned[name] = slices.DeleteFunc(list, func(o *Owned) bool {
			if o.ValueInFuture() {
				acting = append(acting, o)
				return false
			}
			return true
		})
		if len(acting) > 1 {
			g.t.Errorf("%v: shard %s is owned twice: tokens %d (%v) and %d (%v)", time.Now(), name, acting[0].token, acting[0].session, acting[1].token, acting[1].session)
		}
		switch since := g.since[name]; {
		case len(acting) > 0:
			if !since.IsZero() {
				g.idle = max(g.idle, time.Since(since))
			}
			delete(g.since, name)
		case since.IsZero():
			g.since[name] = time.Now()
		}
	}
}

func (g *group) all() []*player {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*player
	for _, p := range g.members {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *player) int { return slices.Compare([]byte(a.id), []byte(b.id)) })
	return all
}

func (g *group) has(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[id] != nil
}

// store is a Store of the group's records for one who is no member. Fault, if not nil, has what
// happens to its calls.
func (g *group) store(fault func(name string, op memory.Op) memory.Fault) func(string) (leaderelection.RaceDecider, error) {
	return func(name string) (leaderelection.RaceDecider, error) {
		d := g.Of(name).Handle()
		if fault != nil {
			d.Inject(func(op memory.Op) memory.Fault { return fault(name, op) })
		}
		if g.polled {
			return d.Polled(), nil
		}
		return d, nil
	}
}

// operator is one of g's group.
func (g *group) operator() Operator { return Operator{Store: g.store(nil)} }

// observe starts an observer, and returns what ends it.
func (g *group) observe(w WatchConfig, cb func(*Assignment)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- w.Watch(ctx, func(_ context.Context, a *Assignment) { cb(a) }) }()
	return func() {
		cancel()
		if err := <-watched; !errors.Is(err, context.Canceled) {
			g.t.Error(err)
		}
	}
}

// put puts an assignment on record, and a coordinator's record that names a version.
func (g *group) put(version, named leaderelection.ElectionNumber) {
	a := gives(version, 1, placed{0, uint64(version), false})
	a.id = "id"
	e := must(a.entry(MaxAssignment))(g.t)
	g.Of(assignmentName).Replace(e)
	g.Of(coordinatorName).Replace(&leaderelection.RaceEntry{
		LeaderID: "a#1", ElectionNumber: 1, Extension: uint64(time.Now().Unix()), TermLength: T, TermExpiry: time.Now().Add(time.Hour),
		ConnectionParams: fmt.Appendf(nil, `{"form":"coordinator/1","version":%d}`, named),
	})
}

// counts are how many shards each member may act on.
func (g *group) counts() map[string]int {
	n := map[string]int{}
	for _, p := range g.all() {
		n[p.id] = len(p.member.Owned())
	}
	return n
}

// settles waits until all shards are owned, evenly, and returns how long that took.
func (g *group) settles(shards int, within time.Duration) time.Duration {
	g.t.Helper()
	begin := time.Now()
	for {
		n := g.counts()
		all, least, most := 0, shards, 0
		for _, c := range n {
			all, least, most = all+c, min(least, c), max(most, c)
		}
		if all == shards && most-least <= 1 {
			return time.Since(begin)
		}
		if time.Since(begin) > within {
			for _, p := range g.all() {
				a := p.member.newestAssignment()
				g.t.Logf("%s: %v knows %+v", p.id, p.member.Session(), a)
			}
			g.t.Errorf("after %v: %v", within, n)
			return within
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// moved returns how many shards have moved since it was called last.
func (g *group) moved() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.moves
	g.moves = 0
	return n
}

// hide leaves a member out of the counts, as a dead one.
func (g *group) hide(p *player) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.members, p.id)
}

func (g *group) show(p *player) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[p.id] = p
}

// dies is the end of a member's process: nothing of it is heard, and nothing that it has is acted on.
func (g *group) dies(p *player) {
	p.cut()
	g.hide(p)
	session := p.member.Session()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, list := range g.owned {
		g.owned[name] = slices.DeleteFunc(list, func(o *Owned) bool { return o.session == session })
	}
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

// stopAll has all members leave, and waits for a term.
func (g *group) stopAll() {
	for _, p := range g.all() {
		p.leave()
	}
	time.Sleep(T)
}

// suffering has a member's calls for one record, or for all if it is "", suffer what f says.
func suffering(record string, f memory.Faults) func(*Config) {
	return func(c *Config) {
		store := c.Store
		c.Store = func(name string) (leaderelection.RaceDecider, error) {
			d, err := store(name)
			if name == record || record == "" {
				d.(interface{ Inject(memory.Faults) }).Inject(f)
			}
			return d, err
		}
	}
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

// must is for what has to work: must(f())(t) is the result of f.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// said is what was logged.
type said struct{ logtest.Log }

func (s *said) logger() *slog.Logger { return slog.New(slog.NewTextHandler(s, nil)) }

// log has a member log here.
func (s *said) log(c *Config) { c.Logger = s.logger() }

// has reports whether one line has all of these.
func (s *said) has(parts ...string) bool {
	for line := range strings.Lines(s.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

// wants fails unless each of these words was logged once since the last call.
func (s *said) wants(t *testing.T, words ...string) {
	t.Helper()
	text := s.Take()
	for _, w := range words {
		if n := strings.Count(text, w); n != 1 {
			t.Errorf("%q was logged %d times, want once:\n%s", w, n, text)
		}
	}
}

func names(p *player) (names []string) {
	for _, o := range p.member.Owned() {
		names = append(names, o.Name())
	}
	return names
}
