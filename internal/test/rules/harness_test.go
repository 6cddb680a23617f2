//go:build go1.25

package rules

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// The term and skew of most tests: those of a Config that was left at its
// defaults, with a skew for machines on NTP.
const (
	T = 15 * time.Second
	S = time.Second

	// spread is over what time standbys spread their calls when a term, hold or reservation is over.
	spread = T / 20
)

// first is the number of a leadership that begins with its bubble, on an empty record: time
// begins in 2000 there.
const first le.ElectionNumber = 946684800

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// scene is a subtest in virtual time.
func scene(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// scenes are subtests in virtual time.
type scenes map[string]func(t *testing.T)

func (all scenes) run(t *testing.T) {
	t.Helper()
	for name, f := range all {
		scene(t, name, f)
	}
}

// must ends the test if something has failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// member is a candidate under test, and all that it has seen.
type member struct {
	*le.Campaign
	id    string
	stop  context.CancelFunc
	store *memory.Decider

	mu          sync.Mutex
	leaderships []*taste
	ousted      []time.Time
	seen        []le.RaceEntry
	ops         []le.StoreOp
	status      []le.StatusChange
	ext         []le.ViewExtended
	feeds       []le.FeedEvent
	double      []le.RaceEntry
}

// taste is one OnElected.
type taste struct {
	ctx    context.Context
	view   *le.TimeView
	number le.ElectionNumber
	from   time.Time
	done   time.Time // when ctx ended
	cause  error
}

// leadership returns the n-th leadership, or fails.
func (m *member) leadership(t *testing.T, n int) *taste {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.leaderships) <= n {
		t.Fatalf("%s had %d leaderships, want more than %d", m.id, len(m.leaderships), n)
	}
	return m.leaderships[n]
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.leaderships)
}

// writes returns the operations of some kinds since a time.
func (m *member) opsSince(since time.Time, kinds ...le.OpKind) []le.StoreOp {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []le.StoreOp
	for _, op := range m.ops {
		if !op.Start.Before(since) && (len(kinds) == 0 || slices.Contains(kinds, op.Kind)) {
			found = append(found, op)
		}
	}
	return found
}

func (m *member) seenAll() []le.RaceEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// config is a candidate's Config, and what is given to StartHeld besides.
type config struct {
	le.Config
	Hold time.Duration
}

// join starts a candidate on a handle of d with faults of its own. adjust may
// change its Config.
func join(t *testing.T, d *memory.Decider, id string, adjust ...func(*config)) *member {
	t.Helper()
	m := &member{id: id, store: d.Handle()}
	cfg := config{Config: le.Config{
		Decider: m.store, LeaderID: id, TermLength: T, MaxClockSkew: S,
		OnElected: func(ctx context.Context, v *le.TimeView) {
			r := m.elected(ctx, v)
			<-ctx.Done()
			m.unseated(r)
		},
		OnOusting:     func(context.Context) { m.note(func() { m.ousted = append(m.ousted, time.Now()) }) },
		LeaderChanged: func(_ context.Context, e le.RaceEntry) { m.note(func() { m.seen = append(m.seen, e) }) },
		Trace:         m.trace(),
		Logger:        slog.New(slog.DiscardHandler),
	}}
	for _, f := range adjust {
		f(&cfg)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cfg.StartHeld(ctx, cfg.Hold)
	if err != nil {
		t.Fatal(err)
	}
	m.Campaign, m.stop = c, cancel
	t.Cleanup(func() { m.store.Inject(nil); m.quit() })
	return m
}

// leader is a store on which the candidate "a" has led for a second.
func leader(t *testing.T, adjust ...func(*config)) (*memory.Decider, *member) {
	t.Helper()
	d := memory.NewDecider()
	a := join(t, d, "a", adjust...)
	sleep(time.Second)
	a.leads(t)
	return d, a
}

// start starts a campaign that ends with the test, or when stop is called.
func start(t *testing.T, cfg le.Config) (c *le.Campaign, stop context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cfg.Start(ctx)
	must(t, err)
	t.Cleanup(func() { cancel(); <-c.Done() })
	return c, cancel
}

func (m *member) note(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *member) elected(ctx context.Context, v *le.TimeView) *taste {
	r := &taste{ctx: ctx, view: v, number: v.ElectionNumber(), from: time.Now()}
	m.note(func() { m.leaderships = append(m.leaderships, r) })
	return r
}

func (m *member) unseated(r *taste) {
	m.note(func() { r.done, r.cause = time.Now(), context.Cause(r.ctx) })
}

func (m *member) trace() *le.Trace {
	return &le.Trace{
		StoreOp:       func(op le.StoreOp) { m.note(func() { m.ops = append(m.ops, op) }) },
		StatusChanged: func(s le.StatusChange) { m.note(func() { m.status = append(m.status, s) }) },
		Extended:      func(e le.ViewExtended) { m.note(func() { m.ext = append(m.ext, e) }) },
		Feed:          func(e le.FeedEvent) { m.note(func() { m.feeds = append(m.feeds, e) }) },
		DuplicateID:   func(e le.RaceEntry) { m.note(func() { m.double = append(m.double, e) }) },
	}
}

// polled hides the feed of the candidate's handle.
func polled(c *config) { c.Decider = c.Decider.(*memory.Decider).Polled() }

// pushed leaves it.
func pushed(*config) {}

// styles are both ways to learn of a record.
var styles = map[string]func(*config){"pushed": pushed, "polled": polled}

// fed polls unless the store is to push.
func fed(push bool) func(*config) {
	if push {
		return pushed
	}
	return polled
}

// faulty has the candidate's handle fail from the start.
func faulty(f memory.Faults) func(*config) {
	return func(c *config) { c.Decider.(*memory.Decider).Inject(f) }
}

// stamps is a store that shows its tokens with other stamps.
type stamps struct {
	le.RaceDecider
	show func(time.Time) time.Time
}

type stamp struct {
	le.LeaderToken
	shown time.Time
}

func (s stamp) CommitTS() time.Time { return s.shown }

func (s stamps) token(t le.LeaderToken) le.LeaderToken { return stamp{t, s.show(t.CommitTS())} }

func (s stamps) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	e, err := s.RaceDecider.ReadCurrent(ctx)
	if err == nil {
		e.Token = s.token(e.Token)
	}
	return e, err
}

func (s stamps) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	e = e.Clone()
	if t, ok := e.Token.(stamp); ok {
		e.Token = t.LeaderToken
	}
	token, err := s.RaceDecider.WriteEntry(ctx, e)
	if err != nil {
		return nil, err
	}
	return s.token(token), nil
}

func noTime(time.Time) time.Time { return time.Time{} }

// stampsPushed is the same with a feed.
type stampsPushed struct {
	stamps
	feed func(time.Time) time.Time
	of   *memory.Decider
}

func (s stampsPushed) Changes(ctx context.Context) iter.Seq2[*le.RaceEntry, error] {
	return func(yield func(*le.RaceEntry, error) bool) {
		for e, err := range s.of.Changes(ctx) {
			if e != nil {
				e.Token = stamp{e.Token, s.feed(e.Token.CommitTS())}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// stayOn has the store tell no time, so that nothing proves a candidate's clock wrong: for what must hold all
// the same.
func stayOn(c *config) {
	of := c.Decider.(*memory.Decider)
	c.Decider = stampsPushed{stamps{of, noTime}, noTime, of}
}

// unstamped is stayOn without a feed.
func unstamped(c *config) { c.Decider = stamps{c.Decider.(*memory.Decider).Polled(), noTime} }

// watch observes an election until the test ends, or until stop is called, which waits for it.
func watch(t *testing.T, w le.WatchConfig, tell ...func(le.RaceEntry)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := w.Watch(ctx, func(_ context.Context, e le.RaceEntry) {
			for _, f := range tell {
				f(e)
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch returned %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// quit stops a candidate and waits for it.
func (m *member) quit() {
	m.stop()
	<-m.Done()
}

// leads fails unless m leads.
func (m *member) leads(t *testing.T) {
	t.Helper()
	if m.Status() != le.Leading || !m.View().ValueInFuture() {
		t.Fatalf("%s is %v with a view until %v at %v, want it to lead", m.id, m.Status(), m.View().Get(), time.Now())
	}
}

// follows fails if m leads.
func (m *member) follows(t *testing.T) {
	t.Helper()
	if m.Status() == le.Leading || m.View().ValueInFuture() {
		t.Fatalf("%s is %v with a view until %v at %v, want it not to lead", m.id, m.Status(), m.View().Get(), time.Now())
	}
}

// sleep lets virtual time pass, and everything settle.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// rival is a record that somebody else holds for a term from now.
func rival(number le.ElectionNumber) *le.RaceEntry {
	return &le.RaceEntry{
		LeaderID: "rival", Incarnation: "rival's", ElectionNumber: number,
		TermLength: T, TermExpiry: time.Now().Add(T),
	}
}

// near fails unless got is within slack of want.
func near(t *testing.T, what string, got, want, slack time.Duration) {
	t.Helper()
	if diff := (got - want).Abs(); diff > slack {
		t.Errorf("%s took %v, want %v (within %v)", what, got, want, slack)
	}
}
