//go:build go1.25

package simtest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// edit replaces the one place in the root package where old stands, in whatever
// file that is.
type edit struct{ old, new string }

// mutant is a campaign with one mistake in it, which the simulation must find.
type mutant struct {
	name  string
	edits []edit
	run   string // the test that finds it; "": TestSeeds
	seeds string // how many seeds it is given; "": 150
	says  string // a part of what is said of it, or one of several, with | between them
}

// TestMutants proves the simulation: every mistake here was made by some library
// or draft once, and each must be caught, for the right reason. The mistakes are
// laid over the source when the child's tests are built; the source itself is not
// touched.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests once for each mutant")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	limit := make(chan struct{}, 2)
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			limit <- struct{}{}
			defer func() { <-limit }()
			m.hunt(t, root)
		})
	}
}

// TestEveryMutantHasItsPlace finds the mutants that were left behind when the code moved,
// without building them.
func TestEveryMutantHasItsPlace(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.overlay(t, root, t.TempDir()) })
	}
}

// hunt builds the mutant and requires its tests to fail. It leaves out the NATS
// server (by the build tag), which takes longest to link.
func (m *mutant) hunt(t *testing.T, root string) {
	dir := t.TempDir()
	overlay := m.overlay(t, root, dir)
	bin := filepath.Join(dir, "mutant.test")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", "mutant", "-overlay", overlay, "-o", bin, "./internal/simtest")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not compile: %v\n%s", err, out)
	}
	test, seeds := m.run, m.seeds
	if test == "" {
		test = "^TestSeeds$"
	}
	if seeds == "" {
		seeds = "150"
	}
	child := exec.CommandContext(ctx, bin, "-test.run", test, "-test.failfast", "-patience", "10s", "-seeds", seeds)
	child.Dir = filepath.Join(root, "internal/simtest")
	began := time.Now()
	out, err := child.CombinedOutput()
	if err == nil {
		t.Fatalf("not caught by %s", test)
	}
	if !m.blames(out) {
		t.Fatalf("caught, but nothing says %q:\n%s", m.says, head(out, 800))
	}
	t.Logf("caught in %v: %s", time.Since(began).Round(time.Millisecond), verdict(out))
}

// blames reports whether a child's output names the mistake.
func (m *mutant) blames(out []byte) bool {
	for says := range strings.SplitSeq(m.says, "|") {
		if bytes.Contains(out, []byte(says)) {
			return true
		}
	}
	return false
}

// overlay writes the mutant's files, and says in the go command's form what they
// replace.
func (m *mutant) overlay(t *testing.T, root, dir string) string {
	texts := sources(t, root)
	replace := map[string]string{}
	for _, e := range m.edits {
		var in []string
		for file, text := range texts {
			for range strings.Count(text, e.old) {
				in = append(in, file)
			}
		}
		if len(in) != 1 {
			t.Fatalf("the root package has changed: the text that mutant %q replaces stands there %d times %v, must be once; adapt the mutant:\n%s", m.name, len(in), in, e.old)
		}
		texts[in[0]] = strings.Replace(texts[in[0]], e.old, e.new, 1)
		to := filepath.Join(dir, filepath.Base(in[0]))
		replace[filepath.Join(root, in[0])] = to
		if err := os.WriteFile(to, []byte(texts[in[0]]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sources is the root package and what it alone uses, by file.
func sources(t *testing.T, root string) map[string]string {
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	files = append(files, filepath.Join(root, "internal", "skew", "skew.go"))
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, f)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(text)
	}
	return texts
}

// verdict is the first violation in a child's output.
func verdict(out []byte) string {
	lines := strings.Split(string(out), "\n")
	for i, l := range lines {
		if strings.Contains(l, "replay:") && i+2 < len(lines) {
			return strings.TrimSpace(lines[i+2])
		}
	}
	for _, l := range lines {
		if strings.Contains(l, "hot loop:") || strings.Contains(l, "_test.go:") || strings.HasPrefix(l, "panic:") {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

func head(b []byte, n int) []byte { return b[:min(n, len(b))] }
