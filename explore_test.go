package leaderelection

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
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
	// The first has released, and the second leads. Then the store was set back to the first one's, which that reads before it leaves again.
	releasedAndBack = append(slices.Clip(led), does{doLeave, 0, 0}, does{doIssue, 0, 0}, does{doExecute, 0, 0}, does{doAnswer, 0, 0}, does{doPoll, 1, 0}, does{doIssue, 1, 0},
		does{doExecute, 1, 0}, does{doAnswer, 1, 0}, does{doSetBack, 0, 1},
		does{doReturn, 0, 0}, does{doIssue, 0, 0}, does{doAnswer, 0, 0}, does{doIssue, 0, 0}, does{doLeave, 0, 0})
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
	{name: "two-behind", hosts: 2, policy: byClocks, offs: apart, farBack: -6},
	{name: "two-reads", hosts: 2, policy: byClocks, offs: apart, reads: 2, polls: true},
	{name: "two-pushes", hosts: 2, policy: byClocks, offs: apart, pushes: 2, keep: 1},
	{name: "two-rumours", hosts: 2, policy: byClocks, offs: apart, pushes: 3, keep: 1},
	{name: "two-rumours-lost", hosts: 2, policy: byClocks, offs: apart, pushes: 3, keep: 1, lost: 1},
	{name: "two-stale", hosts: 2, policy: byClocks, offs: apart, stale: true, keep: 1, polls: true},
	{name: "two-older", hosts: 2, policy: byClocks, offs: apart, stale: true, keep: 2, polls: true},
	{name: "two-leaves", hosts: 2, policy: byClocks, offs: apart, leaves: true},
	{name: "two-leaves-lost", hosts: 2, policy: byClocks, offs: apart, leaves: true, lost: 1, late: true},
	{name: "two-asks", hosts: 2, policy: byClocks, offs: apart, asks: 1},
	{name: "two-asks-leaves", hosts: 2, policy: byClocks, offs: apart, leaves: true, asks: 1},
	{name: "two-suspends", hosts: 2, policy: byClocks, offs: apart, suspends: true},
	{name: "two-crashes", hosts: 2, policy: byClocks, offs: apart, crashes: 1, proofs: true},
	{name: "two-crashes-lost", hosts: 2, policy: byClocks, offs: apart, crashes: 1, proofs: true, lost: 1},
	{name: "two-died", hosts: 2, policy: byClocks, offs: []int8{0}, crashes: 1, proofs: true, begin: append(slices.Clip(led), does{doCrash, 0, 0}, does{doProve, 1, 0})},
	{name: "two-clones", hosts: 2, policy: byClocks, offs: apart, clones: 4},
	{name: "two-stamps", hosts: 2, policy: byClocks, offs: apart, stamps: true},
	{name: "two-measured", hosts: 2, policy: byLength, offs: []int8{0}, suspends: true},
	{name: "two-turned", hosts: 2, policy: byLength, offs: []int8{0}, suspends: true, turns: true},
	{name: "two-slips", hosts: 2, policy: byLength, offs: []int8{0}, slips: true},
	{name: "measured-stale", hosts: 2, policy: byLength, offs: []int8{0}, stale: true, keep: 1, polls: true},
	{name: "measured-crashes", hosts: 2, policy: byLength, offs: []int8{0}, crashes: 1, proofs: true, slips: true},
	{name: "measured-back-now", hosts: 2, policy: byLength, offs: []int8{0}, backs: 1, stale: true, keep: 1, polls: true, begin: ledAndBack},
	{name: "measured-back", hosts: 2, policy: byLength, offs: []int8{0}, backs: 1, stale: true, keep: 2, polls: true, begin: led},
	{name: "two-mixed", hosts: 2, policy: byClocks, mixed: true, wrong: []int8{-6}, offs: apart},
	{name: "two-holds", hosts: 2, policy: policy{term: 3 * tick, skew: tick, checked: true, hold: 4 * tick}, offs: apart, leaves: true, nowork: true},
	{name: "two-observer", hosts: 3, observer: true, policy: byClocks, offs: apart},
	{name: "three", hosts: 3, policy: byClocks, offs: apart},
	{name: "three-crashes", hosts: 3, policy: byClocks, offs: []int8{0}, crashes: 1, proofs: true},

	{name: "back", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, keep: 2, empties: true, polls: true},
	{name: "back-led", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, empties: true, begin: led},
	{name: "back-led-twice", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 2, polls: true, keep: 2, begin: led},
	{name: "back-led-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, leaves: true, nowork: true, begin: led},
	{name: "back-three", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, leaves: true, nowork: true, begin: ledOfThree},
	{name: "back-three-stale", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, stale: true, polls: true, keep: 2, leaves: true, nowork: true, begin: ledOfThree},
	{name: "back-three-heard", hosts: 3, policy: byClocks, offs: []int8{0}, backs: 1, pushes: 2, polls: true, keep: 3, lost: 1, late: true, leaves: true, nowork: true, begin: ledOfThree},
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
	{name: "back-pushes-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, pushes: 2, keep: 2, leaves: true, nowork: true, begin: led},
	{name: "back-heard-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, pushes: 2, keep: 2, lost: 1, leaves: true, nowork: true, begin: led},
	{name: "back-same-heard", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, pushes: 2, keep: 2, same: true, leaves: true, nowork: true, begin: led},
	{name: "back-lost-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, polls: true, keep: 2, lost: 1, leaves: true, nowork: true, begin: led},
	{name: "back-stale-leaves", hosts: 2, policy: byClocks, offs: []int8{0}, backs: 1, stale: true, polls: true, keep: 2, lost: 1, leaves: true, nowork: true, begin: releasedAndBack},
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
	ended = append(slices.Clip(small), "two", "two-polls", "two-stamps", "two-crashes", "two-died", "measured-set")
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

// TestTold plays histories that an exploration has found, or that somebody has thought of. want is how they end.
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
		"and a replica hides it for a while": {scope: "back-three-stale", want: "step 12, c Issue, is not possible", steps: []does{
			{doSetBack, 0, 0}, {doPoll, 2, 0}, {doStale, 2, 0}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}, {doLeave, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0},
			{doAnswer, 1, 0}, {doPoll, 2, 0}, {doIssue, 2, 0}, {doExecute, 2, 0}, {doAnswer, 2, 0}}},
		"a set-back, and who has left does not know, and releases again": {scope: "back-three-heard", want: "step 18, c Issue, is not possible", steps: []does{
			{doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doGiveUp, 0, 0}, {doDrop, 0, 0}, {doPoll, 2, 0}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0},
			{doTick, 0, 0}, {doSetBack, 0, 1}, {doPoll, 2, 0}, {doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doPoll, 2, 0}, {doIssue, 2, 0}, {doExecute, 2, 0}, {doAnswer, 2, 0}}},
		"a set-back, and who leaves only hears of its second release": {scope: "back-three-heard", want: "step 29, a Issue, is not possible", steps: []does{
			{doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doGiveUp, 0, 0}, {doDrop, 0, 0},
			{doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}, {doSetBack, 0, 2}, {doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doGiveUp, 0, 0}, {doAnswer, 0, 0},
			{doPoll, 2, 0}, {doIssue, 2, 0}, {doExecute, 2, 0}, {doAnswer, 2, 0}, {doLeave, 2, 0}, {doIssue, 2, 0}, {doExecute, 2, 0}, {doAnswer, 2, 0},
			{doPoll, 0, 0}, {doReturn, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}}},
		"a stale read, and later a set-back to what it showed": {scope: "back-stale", steps: []does{
			{doStale, 1, 0}, {doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0},
			{doTick, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doTick, 0, 0}, {doSetBack, 0, 3}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doAnswer, 1, 0}}},
		"a set-back, and who leaves has read an older state": {scope: "back-led-leaves", want: "step 17, a Issue, is not possible", steps: []does{
			{doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doReturn, 0, 0}, {doIssue, 0, 0}, {doPoll, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0},
			{doAnswer, 0, 0}, {doLeave, 0, 0}, {doSetBack, 0, 1}, {doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0},
			{doReturn, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doAnswer, 1, 0}}},
		"a set-back, and who leaves has heard of its own release": {scope: "back-heard-leaves", want: "step 14, a Issue, is not possible", steps: []does{
			{doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doPush, 0, 0}, {doGiveUp, 0, 0}, {doPush, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doSetBack, 0, 1},
			{doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doReturn, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doAnswer, 1, 0}}},
		"a set-back, and who acquires an older state has heard of its own acquisition": {scope: "back-heard-leaves", steps: []does{
			{doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doReturn, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doPush, 0, 0}, {doGiveUp, 0, 0}, {doPush, 1, 0},
			{doTick, 0, 0}, {doTick, 0, 0}, {doTick, 0, 0}, {doTick, 0, 0}, {doIssue, 1, 0}, {doIssue, 1, 0}, {doExecute, 1, 0}, {doSetBack, 0, 1},
			{doIssue, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doAnswer, 1, 0}}},
		"a set-back, and who acquires hears of another first": {scope: "back-same-heard", steps: []does{
			{doLeave, 0, 0}, {doIssue, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}, {doReturn, 0, 0}, {doPush, 1, 0}, {doIssue, 0, 0}, {doIssue, 1, 0}, {doExecute, 1, 0},
			{doPush, 0, 0}, {doAnswer, 1, 0}, {doSetBack, 0, 0}, {doExecute, 0, 0}, {doAnswer, 0, 0}}},
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
	most, each := 4_000, 7
	switch {
	case os.Getenv("EXPLORE") != "":
		most, each = 10_000_000, 1
	case testing.Short():
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
				if compared++; compared%each != 0 || t.Failed() {
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
			r := explore.Run(sys, explore.Options{MaxStates: most})
			t.Logf("%d pairs compared of %v", compared/each, r)
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

// What follows says which worlds are the same: those with one key. What a key leaves out can decide nothing any more, and each
// line says why. TestCanonical compares what follows from worlds that have one key. What is canonical:
//
//   - times are relative to now, and no further in the past than any rule looks;
//   - numbers keep their order, and their distances up to gap; so do extensions of one number;
//   - random ids and versions are named by order of appearance;
//   - what only one host still knows is named for that host alone: see key;
//   - hosts that are alike but for their names change places.

// gap is up to where the distance of two numbers counts. A write that is accepted by a store that keeps what it was given is numbered one
// above the record, which is the greatest of all that was ever told. So only the order counts. Else a number may meet one that is lost.
func (s *scope) gap() uint64 {
	if s.backs > 0 || s.pushes > 2 || s.clones > 0 {
		return 3
	}
	return 1
}

// fields are those of the machine that a key knows. TestKeyKnowsAllFields fails if there is another: say here what it
// means, and then here.
var fields = map[string]string{
	"lease":     "claims witness writes unsure refused proof at proved highest held lead ended",
	"claims":    "policy mistrust newest base older doubt disputed longest quiet dead", // disputed only tells a driver to read
	"claim":     "of seen proved",
	"witness":   "offset bound",
	"write":     "kind of over old begun view done",
	"lead":      "number view asked confirmed expiry last held",
	"viewEnd":   "wall mono early apart",
	"instant":   "wall mono",
	"policy":    "id term skew hold holdsLate measured checked hostPort params priority",
	"RaceEntry": "LeaderID HostPort ConnectionParams TermExpiry TermLength ElectionNumber Extension Incarnation WriteID Successor Unsynchronized Hold Priority Extra Token Emptied",
}

// item is a part of a key: a value as it is, or a number or extension that is still to be named.
type item struct {
	kind itemKind
	v    uint64
}

type itemKind int8

const (
	plain itemKind = iota
	number
	extension // of the number before it
)

// keyer makes keys.
type keyer struct {
	*world
	places  []int // the hosts, in the order of the key
	items   []item
	shared  int // so many items are of what all may still see
	out     []byte
	records []*RaceEntry // by name
	reach   int          // so many of them may still be told, or are led by
	known   int          // and so many ids are of these
	ids     []string
	numbers []uint64
	orders  [][2]uint64
	names   []uint64

	oldest time.Duration // how long ago the oldest call began whose answer tells of claims
	far    time.Duration // the furthest that a clock is off
	lives  bool          // see lostLives
	least  []byte        // see permute
}

func (k *keyer) int(v int64) {
	k.items = append(k.items, item{plain, uint64(v)<<1 ^ uint64(v>>63)})
}

func (k *keyer) bits(all ...bool) {
	v := int64(0)
	for i, b := range all {
		if b {
			v |= 1 << i
		}
	}
	k.int(v)
}

// time adds a time that is relative to now, and at least -limit. Parts of a tick are kept: they tell clones apart.
func (k *keyer) time(t, limit time.Duration) {
	if t < -limit {
		t = -limit + t%tick
	}
	if t%tick == 0 {
		k.int(int64(t/tick) * 2)
	} else {
		k.int(int64(t)*2 + 1)
	}
}

func (k *keyer) wall(t time.Time, limit time.Duration) {
	if t.IsZero() { // of an emptied record
		k.int(1)
		return
	}
	k.time(t.Sub(k.world.time()), limit)
}

func (k *keyer) order(r *RaceEntry) {
	k.items = append(k.items, item{number, uint64(r.ElectionNumber)}, item{extension, r.Extension})
}

// name adds what tells a write from all others.
func (k *keyer) name(r *RaceEntry) {
	k.order(r)
	k.id(r.WriteID)
	k.id(r.Incarnation)
}

func (k *keyer) number(n ElectionNumber) { k.items = append(k.items, item{number, uint64(n)}) }

func (k *keyer) id(s string) {
	if s == "" {
		k.int(0)
		return
	}
	j := slices.Index(k.ids, s)
	if j < 0 {
		j = len(k.ids)
		k.ids = append(k.ids, s)
	}
	k.int(int64(j + 1))
}

// longWait is longer than any wait of a rule.
func (s *scope) longWait() time.Duration {
	p := &s.policy
	if p.measured {
		return p.term + drift(p.term, p.skew) + 2*p.hold + tick
	}
	return max(2*p.term, p.term+3*p.skew, p.term+drift(p.term, p.skew)) + 2*p.hold + tick
}

// floor is how long ago a term has ended that is over by all clocks, at all looks that are still to be compared with it.
func (k *keyer) floor() time.Duration { return k.policy.hold + k.policy.skew + k.far + k.oldest }

func (s *scope) furthest() (far time.Duration) {
	for _, all := range [][]int8{s.offs, s.wrong, s.storeOffs, {s.farBack}} {
		for _, o := range all {
			far = max(far, ticks(o).Abs())
		}
	}
	return far
}

// kept reports whether r is kept for somebody. Else its TermExpiry says nothing, nor since when it is known.
func kept(r *RaceEntry) bool {
	return !r.Vacant() || r.Emptied || r.Hold != 0 || r.Successor != "" && r.Successor != AnySuccessor
}

// record adds a record that host i knows, or any host if i is negative.
func (k *keyer) record(i int, r *RaceEntry) {
	if r == nil {
		k.int(0)
		return
	}
	if j := slices.Index(k.records, r); j >= 0 {
		k.int(int64(j + 1))
		return
	}
	k.records = append(k.records, r)
	k.int(int64(len(k.records)))
	k.name(r)
	k.bits(r.Vacant(), r.Emptied, r.Unsynchronized, r.Successor != "", r.Successor == AnySuccessor,
		k.lives && slices.Contains(k.lost[0], r), k.lives && slices.Contains(k.lost[1], r))
	if r.Successor != "" && r.Successor != AnySuccessor {
		k.int(int64(slices.Index(hostNames, r.Successor)))
	}
	if kept(r) && (i < 0 || !k.overForGood(i, r)) {
		k.expiry(r)
		k.int(int64(r.Hold))
	}
	v, _ := r.Token.(*stored)
	if v == nil {
		return
	}
	by := -1 // a crashed process: nobody's
	for place, h := range k.places {
		if k.hosts[h].process == v.by && (i < 0 || i == h || k.proofs) { // it counts only for who may release it, or prove it dead
			by = place
		}
	}
	k.int(int64(by))
	if k.witnessed() && i < 0 { // see witness.observe: low stays as it is, high grows
		k.wall(v.at, k.longWait()+2*k.far)
		k.int(int64(max(v.low, -k.policy.skew-tick)))
	}
}

// expiry adds a TermExpiry, if anybody compares it.
func (k *keyer) expiry(r *RaceEntry) {
	if !k.policy.measured {
		k.wall(r.TermExpiry, k.floor())
	}
}

// claim adds a claim of host i.
func (k *keyer) claim(i int, c claim) {
	if k.record(i, c.of); c.of == nil {
		return
	}
	e, at := k.hosts[i].l.claims.end(c), k.at(i)
	low, _ := k.shows(i)
	switch {
	case k.jumps > 0: // its rule may be another, once the clock is proved wrong
		k.time(c.seen-at.mono, k.longWait()+k.oldest)
	case !kept(c.of), e == free, e.mono == 0, k.overForGood(i, c.of), k.steady() && !e.wall.IsZero() && e.mono-at.mono >= e.wall.Sub(low):
		k.int(1) // the monotonic clock never ends it
	default:
		k.time(e.mono-at.mono, k.oldest)
	}
}

// witnessed reports whether a stamp may show that a clock is wrong. Of right clocks none does, and nobody else looks at one.
func (s *scope) witnessed() bool { return s.stamps && s.jumps > 0 }

// steady reports whether wall clocks stay where shows says, and monotonic clocks never gain.
func (s *scope) steady() bool {
	return s.jumps == 0 && s.farBack == 0 && !s.slips && !s.mixed && !s.bounds && s.clones == 0
}

// shows are the earliest and the latest that host i's wall clock may show now, or after it was set.
func (w *world) shows(i int) (low, high time.Time) {
	if low = w.at(i).wall; w.sets {
		return w.time().Add(ticks(slices.Min(w.offs))), w.time().Add(ticks(slices.Max(w.offs)))
	}
	return low, low
}

// overForGood reports whether host i's wall clock shows that a claim of r is over, and will show it at all looks that count.
func (k *keyer) overForGood(i int, r *RaceEntry) bool {
	e, at := k.hosts[i].l.claims.end(claim{of: r, seen: math.MaxInt32}), k.at(i)
	low, _ := k.shows(i)
	at.wall = low.Add(-k.oldest)
	return k.steady() && !r.Vacant() && !r.Unsynchronized && (e == free || e.byWall(at))
}

// view adds a view of host i, if it is not over for good.
func (k *keyer) view(i int, v *viewEnd) {
	at := k.at(i)
	wall, mono := v.wall.Sub(at.wall), v.mono-at.mono
	low, high := k.shows(i)
	switch {
	case k.expired(i, v):
		k.int(-1)
	case v.apart != 0 && !k.sets && !k.turns: // see tighten: it comes to that
		k.time(min(wall-v.early, mono), 0)
	case k.steady() && v.apart == 0 && v.wall.Sub(low) <= mono: // the other part never comes first
		k.bits(k.sets, false)
		k.wall(v.wall, k.far)
	case k.steady() && v.apart == 0 && v.wall.Sub(high) >= mono && !k.suspends:
		k.bits(k.sets, true)
		k.time(mono, 0)
	default:
		k.time(mono, 0)
		k.time(wall-v.early, 2*k.far)
		k.bits(v.apart == 0)
	}
}

// sign adds what is known of the set-backs that count.
func (k *keyer) sign(n int8) {
	if k.lives {
		k.int(int64(n))
	}
}

// written adds what a write has written. Whatever compares it compares it with a record.
func (k *keyer) written(i int, r *RaceEntry) {
	if k.name(r); k.clones > 0 { // else its ids tell it from all others
		k.wall(r.TermExpiry, k.floor())
	}
	k.bits(r.Unsynchronized, k.lives && k.gone(0, r.WriteID), k.lives && k.gone(1, r.WriteID))
	k.sign(k.hosts[i].signedBy(r.Incarnation))
}

// showsWrite reports whether a record that the host knows, or may be told of, is what w wrote, or a clone may still draw the same.
func (k *keyer) showsWrite(w *write) bool {
	if slices.ContainsFunc(k.records, w.led) {
		return true
	}
	for _, h := range k.hosts {
		for j := range h.calls {
			if c := &h.calls[j]; c.put != nil && !c.done && !k.doomed(c) && w.led(c.put) {
				return true
			}
		}
		if slices.Contains(randomIDs[:h.draws], w.of.WriteID) {
			return true
		}
	}
	return false
}

// write adds a write of host i, or nothing if it decides nothing any more.
func (k *keyer) write(i, n int) {
	h := k.hosts[i]
	w, l, age := &h.l.writes[n], h.l, k.at(i).mono-h.l.writes[n].begun.mono
	quiet := w.kind != OpExtend && (w.old || w.of.Compare(l.newest.of) > 0) // it may begin one: all that a release can
	shown := k.showsWrite(w) && (w.kind != OpRelease || quiet)
	// It may make this candidate read before it leaves, or begin a quiet.
	holds := age < l.term && (k.leaves || k.asks > 0 || k.witnessed()) && (l.proved == nil || l.proved.Compare(w.over) <= 0 || w.led(l.proved)) || k.bounds && age < k.longWait()
	again := k.keep > 0 || k.reads > 0 || k.current || k.clones > 0 // what it was before may be the base
	// It is counted by the next extension of the same leadership, and by a release.
	same := func(r *RaceEntry) bool { return r != nil && r.ElectionNumber == w.of.ElectionNumber }
	known := func(r *RaceEntry) bool { return same(r) && r.Extension >= w.of.Extension }
	counts := w.of.Extension > 0 && !known(l.newest.of) && !known(l.base.of) &&
		(l.lead != nil && l.lead.number == w.of.ElectionNumber || slices.ContainsFunc(l.writes, func(o write) bool { return o.kind == OpAcquire && !o.done && same(o.of) }) ||
			(k.leaves || k.asks > 0 || k.jumps > 0) && (again && slices.ContainsFunc(k.records, same) || same(l.newest.of) || same(l.base.of))) &&
		!slices.ContainsFunc(l.writes[n+1:], func(o write) bool { return known(o.of) })
	if !shown && !holds && !counts {
		return
	}
	ages := holds || again || l.proved == nil || !w.led(l.proved) // else it is not forgotten before it is gone
	k.bits(shown, holds, counts, true, ages)
	if ages {
		k.time(-age, l.term+drift(l.term, l.skew)+tick) // then issue forgets it
	}
	if shown {
		k.written(i, w.of)
	} else if counts {
		k.order(w.of)
	}
	if !shown && !holds {
		return
	}
	k.bits(w.done, !w.done && w.kind == OpAcquire && k.used(w.of.ElectionNumber) && slices.ContainsFunc(k.records[:k.reach], w.led), (!w.done || quiet) && (w.old || l.old(w.over) && !w.led(l.newest.of)), (!w.done || quiet) && w.over.Emptied, w.kind == OpAcquire && (!w.done || quiet || k.bounds), w.kind == OpRelease, w.robs() && (!w.done || k.bounds))
	if holds {
		k.order(w.over)
	}
	if !w.done {
		k.view(i, &w.view)
	}
}

// host adds what host i knows.
func (k *keyer) host(i int) {
	h, l, at := k.hosts[i], k.hosts[i].l, k.at(i)
	leads := k.leads(i)
	k.bits(h.leaves, h.work, h.drained && leads, l.mistrust, l.offset != 0, l.bound != 0, l.unsure, l.proof, l.claims.doubt, l.newest.proved, leads)
	k.bits(l.base.of == l.newest.of)
	k.sign(h.sign)
	k.int(int64(max(h.slipped-k.ticks, 0)))
	k.int(int64(h.draws))
	k.number(h.seen)
	k.number(l.highest)
	k.int(int64(l.longest))
	k.time(l.quiet-at.mono, k.oldest)
	if k.policy.hold > 0 {
		held := l.held
		if l.lead != nil && !leads { // the next look will see it end
			held = l.lead.held
		}
		k.time(held-at.mono, k.policy.skew) // see rest
	}
	k.claim(i, l.newest)
	k.claim(i, l.base)
	for _, c := range l.older {
		// It counts if it is read again, and while somebody may lead by it.
		public := slices.ContainsFunc(k.records[:k.reach], func(r *RaceEntry) bool { return oneTerm(r, c.of) })
		if public || k.backs > 0 || !c.of.Vacant() && !k.overForGood(i, c.of) {
			k.claim(i, c)
		}
	}
	k.int(-1)
	k.record(i, l.proved)
	for j := range h.calls {
		if c := &h.calls[j]; c.kind != OpRead && (!c.ok || k.retries) { // refused, it is compared with what is read
			k.int(int64(slices.Index(k.records, c.over)))
		}
	}
	if leads {
		k.lead(i)
	}
	for n := range l.writes {
		k.write(i, n)
	}
	k.int(-1)
	refused := -1
	if j := slices.Index(k.records, l.refused); j >= 0 && (j < k.reach || l.refused != l.newest.of && l.refused == l.base.of) { // else it will never be an older base
		refused = j
	}
	k.int(int64(refused))
	if k.proofs {
		for j, id := range k.ids {
			if l.dead[id] {
				k.int(int64(j + 1))
			}
		}
		k.int(0)
	}
	// Only what at shows is asked for: whether a claim was over. If that is open, it will be set anew.
	switch {
	case l.unsure || h.waits() || l.base.of == nil || !l.proof && !l.base.of.Vacant():
		k.int(0)
	case k.bounds:
		k.time(l.at.mono-at.mono, 2*k.longWait())
		k.wall(l.at.wall, 2*k.longWait()+k.far)
	case k.witnessed() || k.proofs:
		k.bits(true, l.at.mono < l.quiet, l.claims.end(l.newest).reached(l.at), l.claims.end(l.base).reached(l.at))
	default:
		seen, _ := l.over(l.at, l.mine)
		k.bits(true, seen)
	}
}

// call adds a call of host i.
func (k *keyer) call(i int, c *apiCall) {
	done := c.done || k.doomed(c)
	k.bits(c.kind == OpRead, c.kind == OpRelease, c.lost, done, c.ok, c.done, c.by == k.hosts[i].process)
	if c.ok || k.current && c.done {
		k.record(-1, c.got)
	}
	if c.put != nil && !done {
		k.int(int64(slices.Index(k.records, c.over)))
		k.name(c.put)
		k.expiry(c.put)
		k.bits(c.put.Unsynchronized, c.put.Successor != "", c.kind == OpAcquire && c.over == k.store && k.used(c.put.ElectionNumber))
		k.int(int64(c.put.Hold))
	}
	if c.kind == OpRead || k.current || c.ok || !done {
		limit := k.longWait()
		if c.kind != OpRead && !k.current { // then the write is forgotten: what it wrote is another's, and was not over when it began
			limit = k.policy.term + drift(k.policy.term, k.policy.skew) + tick
		}
		if k.witnessed() {
			limit = k.longWait() + 2*k.far
		}
		k.time(c.begun.mono-k.at(i).mono, limit)
		if k.jumps > 0 || (k.sets || k.suspends) && (c.kind == OpRead || k.current) {
			k.wall(c.begun.wall, k.longWait()+k.far)
		}
	}
}

// lead adds the lead of host i.
func (k *keyer) lead(i int) {
	d := k.hosts[i].l.lead
	k.number(d.number)
	k.bits(d.asked != "")
	k.written(i, d.confirmed.of)
	k.time(d.confirmed.begun.mono-k.at(i).mono, tick) // then the next extension is due
	k.view(i, &d.view)
	// The term and the view that goes with it count only while the next term would be no greater.
	set := time.Duration(0) // so far the clock may still be set back
	if k.sets || k.jumps > 0 || k.farBack != 0 {
		set = 2 * k.far
	}
	beyond := d.expiry.Sub(k.at(i).wall) - k.policy.term
	if k.policy.measured {
		beyond = -set - tick // each term that it asks for is greater
	}
	if k.time(beyond, set+tick); beyond >= -set {
		k.view(i, &d.last)
	}
	if k.policy.hold > 0 {
		k.time(d.held-k.at(i).mono, k.policy.skew)
	}
}

// key names a world: the least of its names, if hosts change places.
func (k *keyer) key(w *world) []byte {
	*k = keyer{world: w, places: k.places[:0], items: k.items, out: k.out[:0], records: k.records, ids: k.ids, numbers: k.numbers, orders: k.orders, names: k.names, far: w.furthest()}
	for i, h := range w.hosts {
		k.places = append(k.places, i)
		for _, c := range h.calls {
			if c.kind == OpRead || w.current {
				k.oldest = max(k.oldest, min(w.at(i).mono-c.begun.mono, k.longWait()))
			}
		}
	}
	k.lives = k.lostLives() || w.backsLeft > 0
	if w.observer || w.mixed || w.asks > 0 || w.clones > 0 || len(w.wrong) > 0 { // a step, rule or judge tells hosts apart by their names
		k.add()
		return k.out
	}
	slices.SortStableFunc(k.places, func(a, b int) int { return cmp.Compare(w.looks(a), w.looks(b)) })
	k.permute(0)
	return k.least
}

// permute keeps the least name of all orders of hosts that look alike.
func (k *keyer) permute(from int) {
	if from == len(k.places) {
		from := len(k.out)
		if k.add(); k.least == nil || bytes.Compare(k.out[from:], k.least) < 0 {
			k.least = k.out[from:]
		}
		return
	}
	for j := from; j < len(k.places) && k.looks(k.places[j]) == k.looks(k.places[from]); j++ {
		k.places[from], k.places[j] = k.places[j], k.places[from]
		k.permute(from + 1)
		k.places[from], k.places[j] = k.places[j], k.places[from]
	}
}

// looks is a part of what tells hosts apart, so that few orders are compared.
func (w *world) looks(i int) int {
	n := len(w.hosts[i].calls) << 1
	if w.leads(i) {
		n++
	}
	if !w.turns {
		n |= int(w.hosts[i].off) << 4
	}
	return n
}

// add names a world. First comes what may still be told, and what anybody leads by. The rest is what each host knows besides. It is compared with that,
// and never with what another host knows.
func (k *keyer) add() {
	w := k.world
	k.items, k.records, k.ids = k.items[:0], k.records[:0], k.ids[:0]
	for _, n := range []int8{w.storeOff, w.asksLeft, w.crashesLeft, w.backsLeft, w.jumpsLeft} {
		k.int(int64(n))
	}
	k.bits(k.used(w.store.ElectionNumber + 1))
	k.record(-1, w.store)
	for _, r := range w.past {
		k.record(-1, r)
	}
	for _, i := range k.places {
		h := w.hosts[i]
		if !k.turns { // the clock is compared with nothing
			k.int(int64(h.off))
		}
		k.int(int64(len(h.calls)))
		for j := range h.calls {
			k.call(i, &h.calls[j])
		}
		if w.leads(i) { // see lapsed
			k.name(h.l.lead.confirmed.of)
		}
	}
	k.shared, k.reach, k.known = len(k.items), len(k.records), len(k.ids)
	k.finish(0)
	for _, i := range k.places {
		k.items, k.records, k.ids = k.items[:k.shared], k.records[:k.reach], k.ids[:k.known]
		k.host(i)
		k.finish(k.shared)
	}
}

// used reports whether the judge will not have anybody lead by n.
func (k *keyer) used(n ElectionNumber) bool { return n <= k.top && k.backsLeft == k.backs }

// lostLives reports whether a view is true, or may begin, by what a set-back has lost. Else it does not count who knows of that.
func (k *keyer) lostLives() bool {
	lost := func(r *RaceEntry) bool { return k.gone(0, r.WriteID) || k.gone(1, r.WriteID) }
	for i, h := range k.hosts {
		if k.leads(i) && lost(h.l.lead.confirmed.of) || slices.ContainsFunc(h.calls, func(c apiCall) bool { return (c.ok || k.current && c.done) && lost(c.got) }) {
			return true
		}
	}
	return slices.ContainsFunc(k.past, lost)
}

// finish names the numbers and extensions, and adds all items from one on to the name. Of those before, the numbers are compared with.
func (k *keyer) finish(from int) {
	k.numbers, k.orders, k.names = k.numbers[:0], k.orders[:0], k.names[:0]
	gap, last := k.gap(), uint64(0)
	for _, it := range k.items {
		switch it.kind {
		case number:
			last = it.v
			k.numbers = append(k.numbers, last)
		case extension:
			k.orders = append(k.orders, [2]uint64{last, it.v})
		}
	}
	slices.Sort(k.numbers)
	k.numbers = slices.Compact(k.numbers)
	compare := func(a, b [2]uint64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
	slices.SortFunc(k.orders, compare)
	k.orders = slices.Compact(k.orders)
	// After the names of the numbers come those of the orders. How far the first number is from none says nothing; nor the first
	// extension of a number, unless an acquisition may come with a number that is taken.
	was, name := uint64(0), uint64(0)
	for _, n := range k.numbers {
		if name == 0 && n > 0 {
			name++
		} else {
			name += min(n-was, gap)
		}
		k.names, was = append(k.names, name), n
	}
	taken := k.clones > 0 || k.backs > 0 || k.pushes > 2
	group := uint64(math.MaxUint64)
	for _, o := range k.orders {
		if o[0] != group {
			if group, was, name = o[0], 0, 0; !taken {
				was = o[1]
			}
		}
		name += min(o[1]-was, gap)
		k.names, was = append(k.names, name), o[1]
	}
	for j, it := range k.items {
		v := it.v
		if j < from && it.kind == plain {
			continue
		}
		switch it.kind {
		case number:
			last = v
			j, _ := slices.BinarySearch(k.numbers, v)
			v = k.names[j]
		case extension:
			j, _ := slices.BinarySearchFunc(k.orders, [2]uint64{last, v}, compare)
			v = k.names[len(k.numbers)+j]
		}
		k.out = binary.AppendUvarint(k.out, v)
	}
}
