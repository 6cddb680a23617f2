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

// edit replaces the one place in a file of the root package where old stands.
type edit struct{ file, old, new string }

// mutant is a campaign with one mistake in it, which the simulation must find.
type mutant struct {
	name  string
	edits []edit
	run   string // the test that finds it; "": TestSeeds
	seeds string // how many seeds it is given; "": 150
	says  string // a part of what is said of it
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

// hunt builds the mutant and requires its tests to fail.
func (m *mutant) hunt(t *testing.T, root string) {
	dir := t.TempDir()
	overlay := m.overlay(t, root, dir)
	bin := filepath.Join(dir, "mutant.test")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, "./internal/simtest")
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
	if !bytes.Contains(out, []byte(m.says)) {
		t.Fatalf("caught, but nothing says %q:\n%s", m.says, head(out, 800))
	}
	t.Logf("caught in %v: %s", time.Since(began).Round(time.Millisecond), verdict(out))
}

// overlay writes the mutant's files, and says in the go command's form what they
// replace.
func (m *mutant) overlay(t *testing.T, root, dir string) string {
	replace := map[string]string{}
	for _, e := range m.edits {
		original := filepath.Join(root, e.file)
		from := original
		if to := replace[original]; to != "" {
			from = to
		}
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			t.Fatalf("%s has changed: the text that mutant %q replaces stands there %d times, must be once; adapt the mutant:\n%s", e.file, m.name, n, e.old)
		}
		to := filepath.Join(dir, e.file)
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[original] = to
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
