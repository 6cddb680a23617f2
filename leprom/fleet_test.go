package leprom_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
)

// fleet is an election that has gone well for a minute: a leads, and b stands by. From then on
// what is logged and measured is taken down.
type fleet struct {
	a, b   *node
	all    []*node
	join   func(id string) *node
	before *le.RaceEntry // the record as it was in an earlier leadership

	measured map[string]span // of each series
	leaders  int             // how many have led at once, at most

	mu    sync.Mutex
	taken bool
	lines []string
}

// span is the least and the greatest value of a series.
type span struct{ low, high float64 }

// node is a candidate.
type node struct {
	store   *memory.Decider
	clock   *sim.Clock
	metrics *rig
	sick    atomic.Pointer[error]         // what Healthy returns
	hanging atomic.Pointer[chan struct{}] // what OnElected waits for after its ctx has ended
	leave   context.CancelFunc            // ends its campaign
}

// gated is a store of which a stopped process asks nothing, and hears nothing.
type gated struct {
	*memory.Decider
	clock *sim.Clock
}

func (g gated) ReadCurrent(ctx context.Context) (*le.RaceEntry, error) {
	g.clock.Gate()
	e, err := g.Decider.ReadCurrent(ctx)
	g.clock.Gate()
	return e, err
}

func (g gated) WriteEntry(ctx context.Context, e *le.RaceEntry) (le.LeaderToken, error) {
	g.clock.Gate()
	token, err := g.Decider.WriteEntry(ctx, e)
	g.clock.Gate()
	return token, err
}

// A fleet is the slog.Handler of all its candidates.
func (f *fleet) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (f *fleet) WithAttrs([]slog.Attr) slog.Handler           { return f }
func (f *fleet) WithGroup(string) slog.Handler                { return f }
func (f *fleet) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message + " |"
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken {
		f.lines = append(f.lines, line)
	}
	return nil
}

// take begins, or ends, to take down what is logged.
func (f *fleet) take(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = on
}

// candidate starts one.
func (f *fleet) candidate(ctx context.Context, t *testing.T, election *memory.Decider, id string) *node {
	t.Helper()
	ctx, leave := context.WithCancel(ctx)
	n := &node{store: election.Handle(), clock: sim.NewClock(time.Now(), S, 0, 0, 1), metrics: newRig(), leave: leave}
	config := le.Config{
		Decider: gated{n.store, n.clock}, LeaderID: id, TermLength: T, MaxClockSkew: S, Clock: n.clock, Logger: slog.New(f),
		Healthy: func(context.Context) error {
			if err := n.sick.Load(); err != nil {
				return *err
			}
			return nil
		},
		OnElected: func(ctx context.Context, _ *le.TimeView) {
			<-ctx.Done()
			if c := n.hanging.Load(); c != nil {
				<-*c
			}
		},
	}
	measured, err := n.metrics.Candidate("orders", config)
	if err != nil {
		t.Fatal(err)
	}
	config.Trace = measured.Trace()
	campaign, err := config.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-campaign.Done() })
	f.all = append(f.all, n)
	return n
}

// look takes down what is measured, each second for some time.
func (f *fleet) look(t *testing.T, d time.Duration) {
	t.Helper()
	for range int(d / time.Second) {
		time.Sleep(time.Second)
		synctest.Wait()
		leaders := 0
		for _, n := range f.all {
			if n.clock.Frozen() {
				continue // it answers no scrape
			}
			for series, v := range n.metrics.read(t) {
				was, is := f.measured[series]
				if !is {
					was = span{v, v}
				}
				f.measured[series] = span{min(was.low, v), max(was.high, v)}
				if strings.HasSuffix(series, " is_leader") {
					leaders += int(v)
				}
			}
		}
		f.leaders = max(f.leaders, leaders)
	}
}

// observe has something happen to a fleet, and says what is seen until a minute after its end.
func observe(t *testing.T, failure func(*fleet) (end func())) *fleet {
	t.Helper()
	f := &fleet{measured: map[string]span{}}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		election := memory.NewDecider()
		f.before = &le.RaceEntry{LeaderID: "z", ElectionNumber: 4, Incarnation: "z's", TermLength: T, TermExpiry: time.Now().Add(-time.Hour)}
		election.Replace(&le.RaceEntry{ElectionNumber: 5, Incarnation: "y's", TermLength: T, TermExpiry: time.Now()})
		f.join = func(id string) *node { return f.candidate(ctx, t, election, id) }
		f.a = f.join("a")
		time.Sleep(time.Second)
		f.b = f.join("b")
		time.Sleep(time.Minute)
		f.take(true)
		end := failure(f)
		f.look(t, time.Minute)
		end()
		f.look(t, time.Minute)
		f.take(false)
	})
	return f
}
