package leprom_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/test/sim"
)

// failures is what may happen to a fleet, by its name in docs/operations.md; each returns how it
// ends. After another minute everything is to be well again.
var failures = map[string]func(f *fleet) (end func()){
	"The store is down": func(f *fleet) func() {
		f.a.store.Inject(memory.LoseRequests())
		f.b.store.Inject(memory.LoseRequests())
		return f.healed
	},
	"The leader is cut off from the store": func(f *fleet) func() {
		f.a.store.Inject(memory.LoseRequests())
		return f.healed
	},
	"The leader is frozen": func(f *fleet) func() { // it asks the store nothing, and hears nothing
		thawed := make(chan struct{})
		f.a.store.Inject(memory.Hang(thawed))
		thaw := f.a.clock.Freeze(false)
		return func() { f.healed(); close(thawed); thaw() }
	},
	"The leader's work hangs": func(f *fleet) func() {
		hanging := make(chan struct{})
		f.a.hanging.Store(&hanging)
		sick := errors.New("the disk is full")
		f.a.sick.Store(&sick)
		return func() { close(hanging); f.a.sick.Store(nil) }
	},
	"A clock is off": func(f *fleet) func() {
		f.a.clock.Step(5 * time.Second)
		return func() { f.a.clock.Restore(); f.b.leave() } // so that a leads again, and its writes are stamped
	},
	"The record is damaged": func(f *fleet) func() {
		_, err := record.Unmarshal("orders", []byte(`{"leaderelection":1,"leader_id"`))
		return f.unreadable(err)
	},
	"The record is a newer version's": func(f *fleet) func() {
		text, err := record.Marshal(f.a.store.Entry())
		if err == nil {
			_, err = record.Unmarshal("orders", []byte(strings.Replace(string(text), "{", `{"must_understand":["quorum"],"quorum":3,`, 1)))
		}
		return f.unreadable(err)
	},
	"The application is not healthy": func(f *fleet) func() {
		sick := errors.New("the disk is full")
		f.a.sick.Store(&sick)
		return func() { f.a.sick.Store(nil) }
	},
	"Two candidates have one LeaderID": func(f *fleet) func() { f.join("a"); return f.healed },
	"Something spoils conditions": func(f *fleet) func() {
		refuse := memory.Fail(&le.LostRaceError{Place: "orders"}).On(memory.Write)
		f.a.store.Inject(refuse)
		f.b.store.Inject(refuse)
		return f.healed
	},
	"The record is emptied":                         func(f *fleet) func() { f.a.store.Replace(&le.RaceEntry{Emptied: true}); return f.healed },
	"The record is deleted":                         func(f *fleet) func() { f.a.store.Replace(nil); return f.healed },
	"The store is set back":                         func(f *fleet) func() { f.a.store.Replace(f.before); return f.healed },
	"The record is deleted, and a candidate starts": func(f *fleet) func() { f.a.store.Replace(nil); f.join("c"); return f.healed },
	"The store is set back, and a candidate starts": func(f *fleet) func() { f.a.store.Replace(f.before); f.join("c"); return f.healed },
}

// healed has the store answer everybody.
func (f *fleet) healed() { f.a.store.Inject(nil); f.b.store.Inject(nil) }

// unreadable has the record be one that nobody can read, so that whoever writes loses the race.
func (f *fleet) unreadable(err error) (end func()) {
	fault := func(op memory.Op) memory.Fault {
		if op.Kind == memory.Write {
			return memory.Fault{Err: &le.LostRaceError{Place: "orders"}}
		}
		return memory.Fault{Err: err}
	}
	f.a.store.Inject(fault)
	f.b.store.Inject(fault)
	return f.healed
}

// docsRow is a row of the table of failures: what is said, and what is measured.
var docsRow = regexp.MustCompile(`(?m)^\| \*\*([^|]+)\*\*[^|]*\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$`)

var quoted = regexp.MustCompile("`([^`]+)`")

// What docs/operations.md tells an operator to look for in a failure is seen in it, and is not
// seen if all is well. No other warning is said.
func TestFailures(t *testing.T) {
	text := must(os.ReadFile("../../docs/operations.md"))(t)
	well := observe(t, func(f *fleet) func() { return f.healed })
	if len(well.lines) > 0 {
		t.Errorf("though nothing has happened it says %q", well.lines)
	}
	told := map[string]bool{}
	above := ""
	for _, row := range docsRow.FindAllStringSubmatch(string(text), -1) {
		name, comesOf, said, measured := row[1], row[2], row[3], row[4]
		told[name] = true
		said = strings.Replace(said, "as above", above, 1)
		above = said
		t.Run(name, func(t *testing.T) {
			failure := failures[name]
			if failure == nil {
				t.Fatal("nobody knows how this happens")
			}
			f := observe(t, failure)
			f.checkSaid(t, said)
			f.checkMeasured(t, measured, well)
			if two := strings.Contains(comesOf, "**two leaders**"); (f.leaders > 1) != two {
				t.Errorf("%d lead at once, and the row has two leaders: %v", f.leaders, two)
			}
		})
	}
	for name := range failures {
		if !told[name] {
			t.Errorf("docs/operations.md does not tell of %q", name)
		}
	}
}

// checkSaid compares the cell of a row with what was logged.
func (f *fleet) checkSaid(t *testing.T, cell string) {
	t.Helper()
	said := func(what string) bool {
		return slices.ContainsFunc(f.lines, func(l string) bool { return strings.Contains(l, what) })
	}
	var words, maybe []string
	always, atTimes, _ := strings.Cut(cell, "; at times")
	for _, m := range quoted.FindAllStringSubmatch(always, -1) {
		words = append(words, m[1])
	}
	for _, m := range quoted.FindAllStringSubmatch(atTimes, -1) {
		maybe = append(maybe, m[1])
	}
	// Of two causes between which chance decides one is said.
	either := regexp.MustCompile("`([^`]+)` or `([^`]+)`").FindStringSubmatch(cell)
	for _, w := range words {
		if !said(w) && (either == nil || !slices.Contains(either, w) || !said(either[1]) && !said(either[2])) {
			t.Errorf("%q is not said:\n%s", w, strings.Join(f.lines, "\n"))
		}
	}
	if (len(words) == 0) != (cell == "nothing") {
		t.Errorf("the cell names no line: %s", cell)
	}
	for _, line := range f.lines {
		level, message, _ := strings.Cut(line, " leaderelection: ")
		message, _, _ = strings.Cut(message, " | ")
		whole := func(w string) bool { return message == w || strings.HasPrefix(message, w+":") }
		if level != "INFO" && !slices.ContainsFunc(words, whole) && !slices.ContainsFunc(maybe, whole) {
			t.Errorf("the row does not tell of the warning %q", line)
		}
	}
}

var isMetric = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// checkMeasured compares the cell of a row with what was measured: each metric that it names has
// a value that it does not have if all is well, by the label that is named after it.
func (f *fleet) checkMeasured(t *testing.T, cell string, well *fleet) {
	t.Helper()
	metric, seen := "", false
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		word := m[1]
		label := ""
		if isMetric.MatchString(word) && !slices.Contains([]string{"lost_race", "clock_skew"}, word) {
			metric = word
		} else {
			label = word
		}
		moved := false
		for series, v := range f.measured {
			_, name, _ := strings.Cut(series, " ")
			name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
			if was, is := well.measured[series]; name == metric && (label == "" || slices.Contains(strings.Split(labels, ","), label)) &&
				(!is || v.low < was.low || v.high > was.high) {
				moved = true
			}
		}
		// Of two labels between which chance decides one moves.
		if either := strings.Contains(cell, "` or `"+word+"`") || strings.Contains(cell, "`"+word+"` or `"); !moved && !either {
			t.Errorf("%s %s is as if all were well", metric, label)
		}
		seen = seen || moved
	}
	if !seen {
		t.Errorf("the cell names nothing that moves: %s", cell)
	}
}

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
		Decider: n.store, LeaderID: id, TermLength: T, MaxClockSkew: S, Clock: n.clock, Logger: slog.New(f),
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
	measured := must(n.metrics.Candidate("orders", config))(t)
	config.Trace = measured.Trace()
	campaign := must(config.Start(ctx))(t)
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
