package leaderelection

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/explore"
)

// A term of three ticks, a skew of one: drift 1, patience 6, and an extension is due each tick.
var (
	byClocks = policy{term: 3 * tick, skew: tick, checked: true}
	byLength = policy{term: 3 * tick, skew: tick, measured: true}
)

// What has happened before: the first host leads, and the last has read that. In ledOfThree the second has read the record before.
var (
	led        = []does{{doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doIssue, 1, 0}}
	ledOfThree = []does{{doIssue, 0, 0}, {doIssue, 1, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doIssue, 2, 0}}
	// The store was set back, and nobody knows.
	ledAndBack        = append(slices.Clip(led), does{doSetBack, 0, 0})
	ledOfThreeAndBack = append(slices.Clip(ledOfThree), does{doSetBack, 0, 0})
	// The store was set back, the third has read that, and the second, which has not known what is lost, leads.
	takenOfThree = append(slices.Clip(ledOfThree), does{doSetBack, 0, 0}, does{doPoll, 2, 0}, does{doPoll, 1, 0}, does{doIssue, 1, 0}, does{doExecute, 1, 0}, does{doAnswer, 1, 0})
)

var apart = []int8{-1, 1}

var scopes = []scope{
	{name: "small", hosts: 2, policy: policy{term: 2 * tick, skew: tick, checked: true}, offs: []int8{0}, polls: true},
	{name: "small-lost", hosts: 2, policy: policy{term: 2 * tick, skew: tick, checked: true}, offs: []int8{0}, lost: 1},
	{name: "two", hosts: 2, policy: byClocks, offs: apart},
	{name: "two-polls", hosts: 2, policy: byClocks, offs: apart, polls: true},
	{name: "two-lost", hosts: 2, policy: byClocks, offs: apart, lost: 1},
	{name: "two-late", hosts: 2, policy: byClocks, offs: apart, lost: 1, late: true, retries: true},
	{name: "two-current", hosts: 2, policy: byClocks, offs: apart, lost: 1, retries: true, current: true},
	{name: "two-sets", hosts: 2, policy: byClocks, offs: apart, sets: true},
	{name: "two-reads", hosts: 2, policy: byClocks, offs: apart, reads: 2, polls: true},
	{name: "two-pushes", hosts: 2, policy: byClocks, offs: apart, pushes: 2, keep: 1},
	{name: "two-rumours", hosts: 2, policy: byClocks, offs: apart, pushes: 3, keep: 1, lost: 1},
	{name: "two-stale", hosts: 2, policy: byClocks, offs: apart, stale: true, keep: 2, polls: true},
	{name: "two-leaves", hosts: 2, policy: byClocks, offs: apart, leaves: true},
	{name: "two-asks", hosts: 2, policy: byClocks, offs: apart, leaves: true, asks: 1},
	{name: "two-suspends", hosts: 2, policy: byClocks, offs: apart, suspends: true},
	{name: "two-crashes", hosts: 2, policy: byClocks, offs: apart, crashes: 1, proofs: true, lost: 1},
	{name: "two-died", hosts: 2, policy: byClocks, offs: []int8{0}, crashes: 1, proofs: true, begin: append(slices.Clip(led), does{doCrash, 0, 0}, does{doProve, 1, 0})},
	{name: "two-clones", hosts: 2, policy: byClocks, offs: apart, clones: 4},
	{name: "two-stamps", hosts: 2, policy: byClocks, offs: apart, stamps: true},
	{name: "two-measured", hosts: 2, policy: byLength, offs: []int8{0}, suspends: true},
	{name: "two-slips", hosts: 2, policy: byLength, offs: []int8{0}, slips: true},
	{name: "two-mixed", hosts: 2, policy: byClocks, mixed: true, wrong: []int8{-6}, offs: apart},
	{name: "two-holds", hosts: 2, policy: policy{term: 3 * tick, skew: tick, checked: true, hold: 4 * tick}, offs: apart, leaves: true, nowork: true},
	{name: "two-observer", hosts: 3, observer: true, policy: byClocks, offs: apart},
	{name: "three", hosts: 3, policy: byClocks, offs: apart},

	{name: "back", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, keep: 2, empties: true, polls: true},
	{name: "back-led", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, empties: true, begin: led},
	{name: "back-led-twice", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 2, polls: true, keep: 2, begin: led},
	{name: "back-led-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, leaves: true, nowork: true, begin: led},
	{name: "back-three", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, leaves: true, nowork: true, begin: ledOfThree},
	{name: "back-three-twice", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 2, polls: true, keep: 2, begin: ledOfThree},
	{name: "back-now", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 1, begin: ledAndBack},
	{name: "back-now-apart", hosts: 2, policy: byClocks, offs: apart, backs: 1, polls: true, keep: 1, begin: ledAndBack},
	{name: "back-now-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 1, leaves: true, nowork: true, begin: ledAndBack},
	{name: "back-now-lost", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 1, lost: 1, begin: ledAndBack},
	{name: "back-now-three", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 1, begin: ledOfThreeAndBack},
	{name: "back-taken", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, leaves: true, nowork: true, begin: takenOfThree},
	{name: "back-stale", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 4, stale: true, begin: led},
	{name: "back-same", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, same: true, begin: led},
	{name: "back-lost", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, lost: 1, begin: led},
	{name: "back-pushes", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, pushes: 2, keep: 2, begin: led},
	{name: "back-clocks", hosts: 2, policy: byClocks, offs: apart, backs: 1, polls: true, keep: 2, empties: true, begin: led},
	{name: "back-emptied", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, empties: true, polls: true, keep: 1, begin: led[:4]},
	{name: "wrong-stamped", hosts: 2, policy: byClocks, offs: []int8{0}, jumps: 2, wrong: []int8{-6, 6, 0}, stamps: true},
	{name: "wrong-led", hosts: 2, policy: byClocks, offs: []int8{0}, jumps: 2, wrong: []int8{-6, 6, 0}, stamps: true, polls: true, begin: led},
	{name: "wrong-bounded", hosts: 2, policy: byClocks, offs: []int8{0}, jumps: 2, wrong: []int8{-6, 6, 0}, bounds: true},
	{name: "store-clock", hosts: 2, policy: byClocks, offs: []int8{0}, jumps: 1, storeOffs: []int8{-6, 6}, stamps: true},

	{name: "back-blind", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, begin: led[:4], strict: true, finds: "two views"},
	{name: "wrong", hosts: 2, policy: byClocks, offs: []int8{0}, jumps: 1, wrong: []int8{-6, 6}, finds: "two views"},
	{name: "measured-set", hosts: 2, policy: byLength, offs: []int8{0, -3}, sets: true, suspends: true, finds: "takes the term for over"},
}

// ended are the scopes that are explored to their end in each run, the first ones also under -short.
var (
	small = []string{"small", "back-blind", "wrong"}
	ended = append(slices.Clip(small), "two", "two-polls", "two-died", "measured-set")
)

func find(name string) *scope {
	i := slices.IndexFunc(scopes, func(s scope) bool { return s.name == name })
	s := scopes[i]
	return &s
}

// offsets are where the clocks may be at first. Hosts that are alike are not told apart.
func (s *scope) offsets() (all [][]int8) {
	all = [][]int8{nil}
	for range s.hosts {
		var next [][]int8
		for _, a := range all {
			for _, o := range s.offs {
				if s.mixed || s.observer || len(s.begin) > 0 || len(a) == 0 || a[len(a)-1] <= o {
					next = append(next, append(slices.Clip(a), o))
				}
			}
		}
		all = next
	}
	if !s.stamps && !s.mixed { // nobody can tell whether all clocks are off
		all = slices.DeleteFunc(all, func(a []int8) bool { return slices.Min(a) != s.offs[0] })
	}
	return all
}

// system explores a scope.
type system struct {
	*scope
	sample int                      // of each so many states it is asked whether somebody leads in time; 0: of none
	same   func(a *world, b []byte) // for tests: called with each world and its key
}

func (s system) Initial() (all []*world) {
	for _, o := range s.offsets() {
		all = append(all, newWorld(s.scope, o))
	}
	return all
}

func (s system) Worker() explore.Worker[*world] { return &worker{system: s} }

type worker struct {
	system
	keyer
	visited int
}

func (e *worker) Key(w *world) []byte {
	b := e.keyer.key(w)
	if e.same != nil {
		e.same(w, b)
	}
	return b
}

func (e *worker) Visit(w *world) error {
	if e.visited++; e.sample == 0 || e.visited%e.sample != 0 {
		return nil
	}
	return w.lives()
}

func (e *worker) Expand(w *world, emit func(explore.Step, *world, error)) {
	w.possible(func(d does) {
		if n := w.next(d); n != nil {
			emit(d.step(), n, n.judge())
		}
	})
}

// says lists what may happen in a scope.
func (s *scope) says() string {
	b := []string{fmt.Sprintf("T %v, S %v", s.policy.term, s.policy.skew)}
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		switch f := v.Type().Field(i); {
		case f.Name == "name", f.Name == "policy", v.Field(i).IsZero():
		case f.Name == "begin":
			b = append(b, fmt.Sprint("after ", len(s.begin), " steps"))
		default:
			b = append(b, fmt.Sprint(f.Name, " ", v.Field(i)))
		}
	}
	return strings.Join(b, ", ")
}

// tell prints a fault as lines, and as a row of TestTold.
func tell(t *testing.T, s *scope, f *explore.Fault) {
	t.Helper()
	var steps []does
	var row strings.Builder
	for _, st := range f.Steps {
		d := stepOf(st)
		steps = append(steps, d)
		fmt.Fprintf(&row, "{do%s, %d, %d}, ", stepNames[d.what], d.who, d.arg)
	}
	lines, last, err := s.history(f.Initial, steps)
	if err == nil {
		err = last.lives()
	}
	t.Logf("%v, after %d steps (and the %d of begin):\n%s", f.Err, len(steps), len(s.begin), strings.Join(lines, "\n"))
	t.Logf("as a row of TestTold:\n\t\"\": {scope: %q, clocks: %d, want: %q, steps: []does{%s}},", s.name, f.Initial, fmt.Sprint(err), strings.TrimSuffix(row.String(), ", "))
}

// TestExplore explores what may happen to the pure machine of an election: some scopes to their end, of others the first states. With
// EXPLORE=30m in the environment, each scope has so long.
func TestExplore(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("EXPLORE"))
	if err != nil && os.Getenv("EXPLORE") != "" {
		t.Fatal(err)
	}
	for i := range scopes {
		s := scopes[i]
		t.Run(s.name, func(t *testing.T) {
			toEnd := slices.Contains(ended, s.name)
			o := explore.Options{MaxTime: long, MaxStates: 10_000_000}
			switch {
			case long > 0:
			case testing.Short() && !slices.Contains(small, s.name):
				t.Skip("nightly: it takes seconds of CPU time")
			case !toEnd:
				o.MaxStates = 20_000
			}
			sample := 10 // of so many states one is asked whether somebody leads in time
			if s.name == "small" && !testing.Short() {
				sample = 1
			}
			if o.Workers = runtime.GOMAXPROCS(0); testing.Verbose() {
				o.Progress = func(r explore.Result) { fmt.Printf("    %s: %v\n", s.name, r) }
			}
			r, fault := explore.Run(system{scope: &s, sample: sample}, o), ""
			t.Logf("%v; one state of %d was asked whether somebody leads in time; %s", r, sample, s.says())
			if r.Fault != nil {
				tell(t, &s, r.Fault)
				fault = r.Fault.Err.Error()
			}
			if (fault == "") != (s.finds == "") || !strings.Contains(fault, s.finds) {
				t.Errorf("it finds %q, want %q", fault, s.finds)
			}
			if toEnd && long == 0 && s.finds == "" && !r.Complete {
				t.Errorf("it has not seen all states: %v", r)
			}
		})
	}
}

// TestTold plays histories that an exploration has found, or that somebody has thought of. want is the fault that the history
// shows; "" means that the machine stands it.
func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		scope  string
		clocks int
		want   string
		steps  []does
	}{
		"a set-back, and another takes the record and leaves": {scope: "back-three", want: "step 11, c Issue, is not possible", steps: []does{
			{doSetBack, 0, 0}, {doPoll, 2, 0}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}, {doLeave, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0},
			{doAnswer, 1, 0}, {doPoll, 2, 0}, {doIssue, 2, 0}}},
		"a set-back that nobody could see": {scope: "back-blind", want: "two views: a by 2 and b by 2", steps: []does{
			{doSetBack, 0, 0}, {doIssue, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}}},
		"a stale read, and later a set-back to what it showed": {scope: "back-stale", steps: []does{
			{doStale, 1, 0}, {doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0},
			{doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doTick, 0, 0}, {doSetBack, 0, 3}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}}},
		"a clock that is set back by more than the allowance, and a suspend before a look": {scope: "measured-set", want: "b takes the term for over by which a leads", steps: []does{
			{doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doSet, 0, -3}, {doIssue, 1, 0}, {doTick, 0, 0}, {doSuspend, 0, 0},
			{doTick, 0, 0}, {doTick, 0, 0}, {doTick, 0, 0}}},
		"a clock that is wrong by two terms, and no stamps": {scope: "wrong", want: "two views: a by 3 and b by 2", steps: []does{
			{doJump, 0, 6}, {doIssue, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doAnswer, 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			lines, _, err := find(c.scope).history(c.clocks, c.steps)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%q, want %q:\n%s", got, c.want, strings.Join(lines, "\n"))
			}
		})
	}
}

// A key that does not know a field would take different states for one.
func TestKeyKnowsAllFields(t *testing.T) {
	for _, v := range []any{lease{}, claims{}, claim{}, witness{}, write{}, lead{}, viewEnd{}, instant{}, policy{}, RaceEntry{}} {
		typ := reflect.TypeOf(v)
		var all []string
		for i := range typ.NumField() {
			all = append(all, typ.Field(i).Name)
		}
		if got := strings.Join(all, " "); got != fields[typ.Name()] {
			t.Errorf("%s has %s; the key knows %s", typ.Name(), got, fields[typ.Name()])
		}
	}
}

// TestCanonical: what follows from two worlds that have one key is the same. So a key leaves out nothing that decides.
func TestCanonical(t *testing.T) {
	most := 4_000
	if testing.Short() {
		most = 300
	}
	for i := range scopes {
		s := scopes[i]
		t.Run(s.name, func(t *testing.T) {
			first := map[string]*world{}
			compared := 0
			sys := system{scope: &s}
			sys.same = func(w *world, b []byte) {
				o, ok := first[string(b)]
				if !ok {
					first[string(b)] = w
					return
				}
				if compared++; compared%7 != 0 || t.Failed() {
					return
				}
				if wf, of := s.follow(w), s.follow(o); !maps.EqualFunc(wf, of, func(a, b after) bool { return a.fault == b.fault }) {
					t.Errorf("two worlds have one key:\n%v\n%v\nand different futures:", w, o)
					for k, step := range wf {
						if _, ok := of[k]; !ok {
							t.Errorf("only the first has\n%v, %v", step, w.next(step.does))
						}
					}
				}
			}
			explore.Run(sys, explore.Options{MaxStates: most})
			t.Logf("%d pairs compared", compared/7)
		})
	}
}

type after struct {
	does
	fault bool
}

// follow returns what may follow from a world, by key. Steps that lead nowhere do not count.
func (s *scope) follow(w *world) map[string]after {
	k, all := &keyer{}, map[string]after{}
	self := bytes.Clone(k.key(w))
	w.possible(func(d does) {
		n := w.next(d)
		if n == nil {
			return
		}
		b := k.key(n)
		if fault := n.judge(); fault != nil || !bytes.Equal(b, self) {
			all[string(b)] = after{d, fault != nil}
		}
	})
	return all
}

// What is left out of the orders of steps, and of the names of worlds, leaves out nothing that the judge sees: all that a full exploration
// of small scopes comes to, the reduced one comes to as well.
func TestReduced(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it takes seconds of CPU time")
	}
	for _, name := range []string{"small-lost", "two-polls"} {
		t.Run(name, func(t *testing.T) {
			judged := func(full bool) (map[string]bool, explore.Result) {
				s, all := find(name), map[string]bool{}
				s.full = full
				sys := system{scope: s}
				sys.same = func(w *world, _ []byte) { all[w.judged()] = true }
				return all, explore.Run(sys, explore.Options{})
			}
			all, full := judged(true)
			some, reduced := judged(false)
			if !maps.Equal(all, some) || full.Complete != reduced.Complete || (full.Fault == nil) != (reduced.Fault == nil) {
				t.Errorf("%d judged outcomes of %v, fault %v, and %d of %v, fault %v", len(all), full, full.Fault, len(some), reduced, reduced.Fault)
			}
		})
	}
}

// judged is what the judge, or a person, sees of a world at one moment, whichever host it is.
func (w *world) judged() string {
	var all []string
	for i, h := range w.hosts {
		s := fmt.Sprint(h.off, w.live(i), h.l.mine(w.store), h.l.old(w.store))
		if h.l.base.of != nil {
			s += fmt.Sprint(h.l.over(w.at(i), h.l.mine))
		}
		if d := h.l.lead; w.live(i) {
			s += fmt.Sprint(d.number < w.store.ElectionNumber, d.view.mono-w.at(i).mono, d.view.wall.Sub(w.at(i).wall))
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return fmt.Sprint(w.store.Vacant(), all)
}
