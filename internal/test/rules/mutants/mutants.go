// Package mutants plants mistakes in a package's code, and runs the tests that must notice
// them. A test that lets its mutant pass guards nothing.
package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Mutant is one mistake.
type Mutant struct {
	Name string
	Edit
	Also []Edit // other places that the same mistake changes

	CaughtBy string // the tests that must fail, by the beginning of their names: a regular expression, or test/scene; "": none
	Slow     bool   // they take a minute, and not seconds
	Hangs    bool   // with the mistake they may never come to rest: they need not fail
	Race     bool   // only the race detector's scheduler shows it to them

	Simulation string // a test of Package.Simulation that must fail; "": none
	Seeds      int    // how many seeds it is given; 0: 150
	Says       string // what it must say of the mistake, or a part of that: a regular expression
}

// Edit is a text that stands in the package's code once, and what takes its place. How the text
// is spaced, on how many lines and in which file, does not matter.
type Edit [2]string

// Package is what mutants are planted in. Directories are relative to the tests' own.
type Package struct {
	Code       []string // directories of its code
	Tests      []string // and of the tests that must notice
	Simulation string   // the directory of the simulation, which takes -seeds and -patience; "": none
}

// Run builds each mutant, and runs the tests that must notice it. The code itself is not touched.
func (p Package) Run(t *testing.T, list []Mutant) {
	if testing.Short() {
		t.Skip("nightly: each mutant is built and tested")
	}
	running := make(chan struct{}, 2)
	for _, m := range list {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			running <- struct{}{}
			defer func() { <-running }()
			overlay := p.overlay(t, &m)
			if m.CaughtBy != "" {
				p.test(t, &m, overlay)
			}
			if m.Simulation != "" {
				p.simulate(t, &m, overlay)
			}
		})
	}
}

// Check finds mutants whose place is gone, without building them.
func (p Package) Check(t *testing.T, list []Mutant) {
	code := p.read(t)
	for _, m := range list {
		if _, err := m.plant(code); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if m.CaughtBy == "" && m.Simulation == "" {
			t.Errorf("%s: nothing is to notice it", m.Name)
		}
	}
}

// read returns the package's code by file.
func (p Package) read(t *testing.T) map[string]string {
	t.Helper()
	code := map[string]string{}
	for _, dir := range p.Code {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no code in %s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code[file] = string(text)
		}
	}
	return code
}

// plant returns the files that the mutant changes, changed.
func (m *Mutant) plant(code map[string]string) (changed map[string]string, err error) {
	changed = map[string]string{}
	for _, e := range append([]Edit{m.Edit}, m.Also...) {
		words := strings.Fields(e[0])
		for i, w := range words {
			words[i] = regexp.QuoteMeta(w)
		}
		old := regexp.MustCompile(strings.Join(words, `\s+`))
		var found []string
		for file, text := range code {
			if c, ok := changed[file]; ok {
				text = c
			}
			for _, at := range old.FindAllStringIndex(text, -1) {
				found = append(found, file)
				changed[file] = text[:at[0]] + e[1] + text[at[1]:]
			}
		}
		if len(found) != 1 {
			return nil, fmt.Errorf("the code has %d places like this, want one: give the mutant the new text\n%s\n%q", len(found), e[0], found)
		}
	}
	return changed, nil
}

// overlay plants the mutant, and returns the file that tells the go command so.
func (p Package) overlay(t *testing.T, m *Mutant) string {
	t.Helper()
	changed, err := m.plant(p.read(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for file, text := range changed {
		original, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		replace[original] = filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// build returns the program of the tests in dir, with the mutant in it.
func build(t *testing.T, dir, overlay string, race bool) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "tests")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay=" + overlay, fmt.Sprintf("-race=%t", race), "-o", bin, dir}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	return bin
}

// run runs a program of tests where they expect to be. It has a time limit of its own, since it outlives
// the test if go test ends that by the package's limit.
func run(t *testing.T, dir, bin string, patience time.Duration, args ...string) (out []byte, late bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	child := exec.CommandContext(ctx, bin, append(args, "-test.timeout="+(2*patience).String())...)
	child.Dir = dir
	out, err = child.CombinedOutput()
	return out, ctx.Err() != nil, err
}

// tests is CaughtBy for the test program, which parts a pattern at each slash outside of parentheses.
func (m *Mutant) tests() string {
	test, scene, _ := strings.Cut(m.CaughtBy, "/")
	return "^(" + test + ")/^(" + scene + ")"
}

// test runs the tests that must notice the mutant.
func (p Package) test(t *testing.T, m *Mutant, overlay string) {
	t.Helper()
	patience := 12 * time.Second
	if m.Slow {
		patience = 2 * time.Minute
	}
	for _, dir := range p.Tests {
		bin := build(t, dir, overlay, m.Race)
		out, late, err := run(t, dir, bin, patience, "-test.failfast", "-test.run="+m.tests())
		if late && !m.Hangs { // a machine that is slow gets to the end if it has more time, and a mutant that hangs does not
			out, late, err = run(t, dir, bin, 3*patience, "-test.failfast", "-test.run="+m.tests())
		}
		failed := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindStringSubmatch(string(out))
		var exit *exec.ExitError
		switch {
		case err == nil:
			continue // the tests of the next directory must
		case failed != nil:
			t.Logf("noticed by %s", failed[1])
		case late:
			t.Log("noticed: it never came to rest")
		case errors.As(err, &exit) && strings.Contains(string(out), "panic:"):
			t.Log("noticed by a panic")
		default:
			t.Errorf("the tests did not run to their end: %v\n%s", err, out[:min(len(out), 2000)])
		}
		return
	}
	t.Errorf("survived %s", m.CaughtBy)
}

// simulate runs the simulation that must notice the mutant, for the right reason.
func (p Package) simulate(t *testing.T, m *Mutant, overlay string) {
	t.Helper()
	seeds := 150
	if m.Seeds > 0 {
		seeds = m.Seeds
	}
	bin := build(t, p.Simulation, overlay, false)
	// Seeds run side by side. The first that fails may say something else of the mistake than all
	// do together, which take longer.
	var out []byte
	var err error
	said := ""
	for _, first := range []string{"-test.failfast", "-test.failfast=false"} {
		out, _, err = run(t, p.Simulation, bin, 5*time.Minute, first, "-test.run=^"+m.Simulation+"$", "-patience=10s", "-seeds="+strconv.Itoa(seeds))
		said = regexp.MustCompile(".*(" + m.Says + ").*").FindString(string(out))
		if err == nil || said != "" {
			break
		}
	}
	switch {
	case err == nil:
		t.Errorf("survived %s of %s", m.Simulation, p.Simulation)
	case said == "":
		t.Errorf("noticed by %s of %s, but nothing says %q:\n%s", m.Simulation, p.Simulation, m.Says, out[:min(len(out), 2000)])
	default:
		t.Logf("noticed by %s: %s", m.Simulation, strings.TrimSpace(said))
	}
}
