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

var (
	errorsFound = regexp.MustCompile(`errors: (\d+)`)
	stored      = regexp.MustCompile(`(\d+) states, stored`)
	violated    = regexp.MustCompile(`(?m)^pan:\d*:?.*(assertion violated)`)
)

// model is the file.
const model = "shards.pml"

// check has spin build the model with the flags, and goes through all its states.
func check(t *testing.T, flags ...string) (wrong bool, states string) {
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

// TestShardModels goes through all states of each model: no rule is broken in any.
func TestShardModels(t *testing.T) {
	for _, s := range shardSettings {
		t.Run(s.name, func(t *testing.T) {
			wrong, states := check(t, strings.Fields(s.flags)...)
			if wrong {
				t.Errorf("spin has found a run that breaks a rule. To see it:\n%s", command(s.flags))
			}
			t.Logf("%s states (%s)", states, s.flags)
		})
	}
}

// TestShardModelsMutants: each rule is needed, and that it is broken shows.
func TestShardModelsMutants(t *testing.T) {
	for _, m := range shardMutants {
		t.Run(m.name, func(t *testing.T) {
			wrong, states := check(t, append(strings.Fields(m.flags), "-DM_"+m.name)...)
			if !wrong {
				t.Errorf("%s: the mutant was not refuted, in %s states", m.rule, states)
			}
			t.Logf("%s: refuted after %s states", m.rule, states)
		})
	}
}

// TestModelsHaveTheirMutants finds a mutant that a table forgot.
func TestModelsHaveTheirMutants(t *testing.T) {
	source, err := os.ReadFile(model)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range shardMutants {
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
func command(flags string) string {
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
