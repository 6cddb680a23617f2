//go:build go1.25

package leaderelection_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mutant is this package with one mistake in it. A test that lets its mutant pass guards
// nothing, and a judge that does not see what it is for is none.
type mutant struct {
	name string
	file string
	old  string // stands in file once
	new  string
	also []edit

	caughtBy string // tests of this package, by their names' beginning: a regular expression; "": none

	simulation string // and a test of internal/simtest; "": none
	seeds      int    // how many it is given; 0: 150
	says       string // what it must say of the mistake, or a part of that: a regular expression
}

// edit is another place that a mutant changes.
type edit struct{ file, old, new string }

// TestMutants builds each mutant, and runs the tests that must catch it. The source
// itself is not touched.
func TestMutants(t *testing.T) {
	running := make(chan struct{}, 2)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			running <- struct{}{}
			defer func() { <-running }()
			bin := m.build(t)
			if m.caughtBy != "" {
				m.rules(t, bin)
			}
			if m.simulation != "" {
				m.simulate(t, bin)
			}
		})
	}
}

// TestEveryMutantHasItsPlace finds the mutants that were left behind when the code moved,
// without building them.
func TestEveryMutantHasItsPlace(t *testing.T) {
	for _, m := range mutants {
		m.texts(t)
		if m.caughtBy == "" && m.simulation == "" {
			t.Errorf("%s: nothing is to catch it", m.name)
		}
	}
}

// texts returns the files that the mutant changes, changed.
func (m *mutant) texts(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, e := range append([]edit{{m.file, m.old, m.new}}, m.also...) {
		if _, read := texts[e.file]; !read {
			source, err := os.ReadFile(e.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[e.file] = string(source)
		}
		if n := strings.Count(texts[e.file], e.old); n != 1 {
			t.Errorf("%s: %s has %d places that read\n%s\nMove the mutant along with the code.", m.name, e.file, n, e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.new, 1)
	}
	return texts
}

// build lays the mutant over the source, and returns the directory of the tests' programs.
func (m *mutant) build(t *testing.T) (bin string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range m.texts(t) {
		broken := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(here, file)] = broken
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay=" + overlay, "-o", dir + string(filepath.Separator)}
	if m.caughtBy != "" {
		args = append(args, ".")
	}
	if m.simulation != "" {
		args = append(args, "./internal/simtest")
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return dir
}

// rules runs the tests of this package that must catch the mutant.
func (m *mutant) rules(t *testing.T, bin string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "leaderelection.test"),
		"-test.timeout=12s", "-test.run=^("+m.caughtBy+")").CombinedOutput()
	failed := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindStringSubmatch(string(out))
	switch {
	case err == nil:
		t.Errorf("survived %s", m.caughtBy)
	case failed != nil:
		t.Logf("caught by %s", failed[1])
	case strings.Contains(string(out), "panic: test timed out"):
		t.Log("caught by the deadline: it never came to rest")
	default:
		t.Errorf("the mutant did not run: %v\n%s", err, out[:min(len(out), 2000)])
	}
}

// simulate runs the simulation that must catch the mutant, for the right reason.
func (m *mutant) simulate(t *testing.T, bin string) {
	t.Helper()
	seeds := 150
	if m.seeds > 0 {
		seeds = m.seeds
	}
	// Seeds run side by side. The first that fails may say something else of the mistake than all
	// do together, which take longer.
	var out []byte
	var err error
	said := ""
	for _, first := range []string{"-test.failfast", "-test.failfast=false"} {
		child := exec.CommandContext(t.Context(), filepath.Join(bin, "simtest.test"),
			"-test.timeout=5m", first, "-test.run=^"+m.simulation+"$", "-patience=10s", "-seeds="+strconv.Itoa(seeds))
		child.Dir = "internal/simtest"
		out, err = child.CombinedOutput()
		said = regexp.MustCompile(".*(" + m.says + ").*").FindString(string(out))
		if err == nil || said != "" {
			break
		}
	}
	switch {
	case err == nil:
		t.Errorf("survived %s of internal/simtest", m.simulation)
	case said == "":
		t.Errorf("caught by %s of internal/simtest, but nothing says %q:\n%s", m.simulation, m.says, out[:min(len(out), 2000)])
	default:
		t.Logf("caught by %s: %s", m.simulation, strings.TrimSpace(said))
	}
}
