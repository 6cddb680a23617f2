package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The house of the tests: the core, a store, a fence that has nothing to do with it, a test
// that alone imports the store, and the command, which imports all.
var house = []pkg{
	{ImportPath: "m", Dir: "."},
	{ImportPath: "m/deciders/s", Dir: "deciders/s", Deps: []string{"m", "context"}},
	{ImportPath: "m/deciders/s [m/deciders/s.test]", Dir: "deciders/s", ForTest: "m/deciders/s", Deps: []string{"m", "context"}},
	{ImportPath: "m/deciders/s_test [m/deciders/s.test]", Dir: "deciders/s", ForTest: "m/deciders/s", Deps: []string{"m", "m/deciders/s [m/deciders/s.test]", "m/internal/fake"}},
	{ImportPath: "m/deciders/s.test", Dir: "deciders/s", Deps: []string{"m", "m/deciders/s_test [m/deciders/s.test]", "m/internal/fake"}},
	{ImportPath: "m/internal/fake", Dir: "internal/fake"},
	{ImportPath: "m/fence", Dir: "fence"},
	{ImportPath: "m/cmd/c", Dir: "cmd/c", Deps: []string{"m", "m/deciders/s", "m/cmd/c/internal/x"}},
	{ImportPath: "m/cmd/c/internal/x", Dir: "cmd/c/internal/x"},
}

func TestAffected(t *testing.T) {
	hasGo := func(dir string) bool {
		return dir == "internal/alone" || slices.ContainsFunc(house, func(p pkg) bool { return p.Dir == dir })
	}
	asked := []string{"m/deciders/s", "m/fence", "m/cmd/c"}
	for _, x := range []struct{ file, want string }{
		{"term.go", "m/deciders/s m/cmd/c"},
		{"deciders/s/write.go", "m/deciders/s m/cmd/c"},
		{"deciders/s/testdata/README.md", "m/deciders/s m/cmd/c"},
		{"deciders/s/README.md", ""},
		{"internal/fake/fake.go", "m/deciders/s"},
		{"fence/fence.go", "m/fence"},
		{"cmd/c/internal/x/page/page.html", "m/cmd/c"},
		{"cmd/c/testdata/script/run.txtar", "m/cmd/c"},
		{"docs/operations.md", ""},
		{"internal/alone/x.go", ""},                    // nothing of what was asked for imports it
		{"internal/gone/x.go", "m/deciders/s m/cmd/c"}, // no such directory: taken for the root's
		{"README.md", ""},
		{"deploy/helm/values.yaml", ""},
		{"fence/go.mod", "m/deciders/s m/fence m/cmd/c"},
		{"go.work", "m/deciders/s m/fence m/cmd/c"},
		{"Makefile", "m/deciders/s m/fence m/cmd/c"},
		{".ci/run", "m/deciders/s m/fence m/cmd/c"},
		{"internal/servers/etcd/main.go", "m/deciders/s m/fence m/cmd/c"},
		{"internal/stores/npm/package.json", "m/deciders/s m/fence m/cmd/c"},
	} {
		if got := strings.Join(affected(asked, house, []string{"LICENSE", x.file}, hasGo), " "); got != x.want {
			t.Errorf("%s affects %q, want %q", x.file, got, x.want)
		}
	}
	if got := affected(asked, house, nil, hasGo); len(got) > 0 {
		t.Errorf("no change affects %q", got)
	}
}

// In a repository: changes that are committed, that are not, files that are new, moved and gone.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example.com"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write("go.mod", "module m\n\ngo 1.24\n")
	write("go.work", "go 1.24\n\nuse .\n")
	write("a/a.go", "package a\n")
	write("b/b.go", "package b\n\nimport _ \"m/a\"\n")
	write("c/c.go", "package c\n")
	write("c/c_test.go", "package c_test\n\nimport _ \"m/a\"\n")
	write("d/d.go", "package d\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "")
	check := func(what string, want ...string) {
		t.Helper()
		var out strings.Builder
		if err := run("HEAD", strings.NewReader("m/a\nm/b\nm/c\nm/d\n"), &out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(out.String()); !slices.Equal(got, want) {
			t.Errorf("%s: %q are affected, want %q", what, got, want)
		}
	}
	check("nothing")
	write("a/new.go", "package a\n")
	check("a new file", "m/a", "m/b", "m/c")
	git("add", ".")
	check("a file that is staged", "m/a", "m/b", "m/c")
	git("commit", "-qm", "two")
	check("a change that is committed already")
	write("d/d.go", "package d // changed\n")
	check("a file that has changed", "m/d")
	git("mv", "a/new.go", "d/new.go")
	write("d/new.go", "package d\n")
	check("a file that has moved", "m/a", "m/b", "m/c", "m/d")

	if err := run("", strings.NewReader("m/a"), nil); err == nil {
		t.Error("without a commit")
	}
	if err := run("no-such", strings.NewReader("m/a"), nil); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("of a commit that is not there: %v", err)
	}
}
