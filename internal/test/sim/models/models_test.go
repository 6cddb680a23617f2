//go:build models

package models_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// settings are the models: what each of them adds to two candidates whose clocks are set at
// will within their bounds, and who acquire, extend, give up and release, for ever.
var settings = []setting{
	{"two extensions", "-DEXTS=2 -DEXTREMES=1"},
	{"suspended, or set back beyond the bound", "-DFARBACK=1 -DLAGS=2"},
	{"views that are looked at", "-DLATCH=1 -DLAGS=1"},
	{"an answer is lost or late", "-DLOSSES=1"},
	{"two writes are open at once", twoOpen},
	{"a feed that tells of what is not committed", "-DFEED=1 -DEXTREMES=1"},
	{"stale reads", "-DSTALE=1"},
	{"the store is set back", setBack},
	{"an operator's request", request},
	{"three candidates", "-DN=3 -DEXTS=0 -DEXTREMES=1"},
	{"unsynchronized, with slow crystals", slow},
	{"unsynchronized, suspended and set back", suspended},
	{"unsynchronized, set back again and again", again},
	{"unsynchronized, suspended within a longer term", longer},
	{"unsynchronized, the store is set back", lagging},
	{"the first is unsynchronized", "-DUNS=1 -DLAGS=2"},
	{"the second is unsynchronized", "-DUNS=2 -DLAGS=2"},
	{"a process dies", death},
	{"a process dies, and an answer is lost or late", death + " -DLOSSES=1"},
	{"a process of three dies", "-DDEATHS=1 -DN=3 -DEXTS=0 -DEXTREMES=1"},
	{"a process dies, unsynchronized", "-DDEATHS=1 -DNUMBERS=3 -DUNS=3 -DSLOW=2"},
}

const (
	twoOpen   = "-DLOSSES=1 -DSLOTS=2 -DEXTREMES=1"
	setBack   = "-DBACK=1 -DEXTREMES=1"
	request   = "-DOPS=1 -DEXTREMES=1"
	slow      = "-DUNS=3 -DSLOW=2"
	suspended = "-DUNS=3 -DSETBACK=4 -DLAGS=4 -DLOSSES=1"
	again     = "-DUNS=3 -DSETBACK=1 -DSETBACKS=3 -DLAGS=3"
	longer    = "-DUNS=3 -DT=5 -DEXTS=0 -DSETBACK=3 -DLAGS=3"
	lagging   = "-DUNS=3 -DSTALE=1 -DBACK=1"
	death     = "-DDEATHS=1 -DNUMBERS=3 -DEXTREMES=1"
)

// mutants break one rule each, or one of the two assumptions on which the promise rests. Each is
// named by the section of docs/design.md or doc.go that has it.
var mutants = []mutant{
	{"The promise", "challenger_without_margin", ""},
	{"The promise", "view_not_cut", ""},
	{"The promise", "unconditional_write", ""},
	{"The promise", "clock_beyond_its_bound", ""},
	{"Terms", "id_for_incarnation", ""},
	{"Terms", "number_from_the_record", setBack},
	{"Views", "wall_clock_ignored", "-DLAGS=3"},
	{"Views", "monotonic_clock_ignored", "-DFARBACK=1"},
	{"Views", "monotonic_end_not_cut", "-DFARBACK=1"},
	{"Views", "same_term_later_end", "-DFARBACK=1"},
	{"Views", "term_shrinks", "-DLOSSES=1 -DLAGS=2 -DEXTREMES=1"},
	{"Views", "no_latch", "-DLATCH=1 -DLAGS=1"},
	{"Views", "unanswered_is_done", "-DLOSSES=1"},
	{"Answers", "any_own_record_confirms", twoOpen},
	{"Answers", "push_confirms", "-DFEED=1 -DEXTREMES=1"},
	{"Order", "older_is_news", setBack},
	{"Order", "request_does_not_raise", request},
	{"Campaigning", "first_attempt_without_wait", ""},
	{"Campaigning", "only_what_was_read_is_waited_for", setBack},
	{"Campaigning", "campaign_while_callbacks_run", ""},
	{"Leaving", "release_while_callbacks_run", ""},
	{"Leaving", "nothing_is_reserved", request},
	{"Transfer", "request_cuts_the_term", request},
	{"Clocks", "no_allowance_for_drift", slow},
	{"Clocks", "wait_from_the_reads_start", slow},
	{"Clocks", "mark_binds_nobody_else", "-DUNS=1"},
	{"Clocks", "unsynchronized_compares", "-DUNS=2"},
	{"Clocks", "set_back_hides_suspend", suspended},
	{"Clocks", "set_back_again", again},
	{"Clocks", "suspend_forgotten", longer},
	{"Clocks", "set_back_forgotten_in_attempts", suspended},
	{"Lifelines", "proof_of_the_living", death},
	{"Lifelines", "view_outlives_its_process", death},
}

var (
	errorsFound = regexp.MustCompile(`errors: (\d+)`)
	stored      = regexp.MustCompile(`(\d+) states, stored`)
	violated    = regexp.MustCompile(`(?m)^pan:\d*:?.*(assertion violated)`)
)

// check has spin build a model with the flags, and goes through all its states.
func check(t *testing.T, model string, flags ...string) (wrong bool, states string) {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, model), source, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s\nThis test needs spin and gcc (Debian: apt install spin gcc libc6-dev).", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("spin", append(append([]string{"-a"}, flags...), model)...)
	// All states are kept whole, in at most 1 GB. Without partial order reduction: there is little to
	// reduce, since nearly every step is one of its own.
	run("gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=1000", "-o", "pan", "pan.c")
	out := run(filepath.Join(dir, "pan"), "-E", "-m100000")
	found, n := errorsFound.FindStringSubmatch(out), stored.FindStringSubmatch(out)
	if found == nil || n == nil || strings.Contains(out, "max search depth too small") || strings.Contains(out, "out of memory") {
		t.Fatalf("the search did not end:\n%s", out)
	}
	wrong = found[1] != "0"
	if wrong != violated.MatchString(out) {
		t.Fatalf("it ended otherwise than by an assertion:\n%s", out)
	}
	return wrong, n[1]
}

// setting is what a model adds to its simplest form, and mutant is a rule that it breaks.
type (
	setting struct{ name, flags string }
	mutant  struct{ rule, name, flags string }
)

// TestModels goes through all states of each model: no rule is broken in any.
func TestModels(t *testing.T)      { allStates(t, "election.pml", settings) }
func TestShardModels(t *testing.T) { allStates(t, "shards.pml", shardSettings) }

func allStates(t *testing.T, model string, settings []setting) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			wrong, states := check(t, model, strings.Fields(s.flags)...)
			if wrong {
				t.Errorf("spin has found a run that breaks a rule. To see it:\n%s", command(model, s.flags))
			}
			t.Logf("%s states (%s)", states, s.flags)
		})
	}
}

// TestModelsMutants: each rule is needed, and that it is broken shows.
func TestModelsMutants(t *testing.T)      { refuted(t, "election.pml", mutants) }
func TestShardModelsMutants(t *testing.T) { refuted(t, "shards.pml", shardMutants) }

func refuted(t *testing.T, model string, mutants []mutant) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			wrong, states := check(t, model, append(strings.Fields(m.flags), "-DM_"+m.name)...)
			if !wrong {
				t.Errorf("%s: the mutant was not refuted, in %s states", m.rule, states)
			}
			t.Logf("%s: refuted after %s states", m.rule, states)
		})
	}
}

// TestModelsHaveTheirMutants finds a mutant that a table forgot.
func TestModelsHaveTheirMutants(t *testing.T) {
	haveTheirMutants(t, "election.pml", mutants)
	haveTheirMutants(t, "shards.pml", shardMutants)
}

func haveTheirMutants(t *testing.T, model string, mutants []mutant) {
	source, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range mutants {
		listed["M_"+m.name] = true
	}
	inModel := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#ifn?def (M_\w+)`).FindAllStringSubmatch(string(source), -1) {
		inModel[m[1]] = true
		if !listed[m[1]] {
			t.Errorf("%s is in %s, but not in the list", m[1], model)
		}
	}
	for name := range listed {
		if !inModel[name] {
			t.Errorf("%s is in the list, but not in %s: nothing would be broken", name, model)
		}
	}
}

// command shows the run that breaks a rule.
func command(model, flags string) string {
	return fmt.Sprintf("cd internal/test/sim/models && spin -a %s %s && gcc -w -DSAFETY -DNOREDUCE -o pan pan.c && ./pan -E -m100000; spin -t -p -g %s %s; rm -f pan* *.trail", flags, model, flags, model)
}

// shardSettings are what each model of package shard adds to one shard, two members and two
// seats, with stale reads, sessions that end at any moment, and a coordinator that may be
// frozen between deciding and writing.
var shardSettings = []setting{
	{"four versions", "-DVERSIONS=4"},
	{"told of what is undone", "-DVERSIONS=3 -DFEED=1"},
	{"the shard is removed and comes back", "-DVERSIONS=4 -DREMOVAL=1 -DSESSIONS=1"},
	{"two coordinators", twoCoordinators},
}

const twoCoordinators = "-DVERSIONS=3 -DCOORDINATORS=2 -DSESSIONS=1"

// shardMutants break one rule of package shard each, or what it takes from the core.
var shardMutants = []mutant{
	{"The core", "sealed_while_the_view_lasts", ""},
	{"Rule 1", "seat_for_session", ""},
	{"Rules 1, 2", "older_is_news", ""},
	{"Rule 3", "what_seems_over_has_ended", ""},
	{"Rule 3", "asked_is_let_go", ""},
	{"Rule 3", "any_token_that_was_let_go", ""},
	{"Rule 3", "told_of_another_session", "-DFEED=1"},
	{"Rule 4", "token_stays", ""},
	{"Rule 4", "token_of_what_is_gone_is_forgotten", "-DREMOVAL=1"},
	{"Rule 4", "removed_while_owned", "-DREMOVAL=1"},
	{"Rule 5", "said_before_the_view_has_ended", ""},
	{"Rule 6", "released_before_it_is_drained", ""},
	{"Rule 7", "shards_kept_by_the_next_session", ""},
	{"Rule 8", "unconditional_write", twoCoordinators},
}
