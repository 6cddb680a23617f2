package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What is found in prose, and on which line; code, headings, questions and places are left alone.
func TestFind(t *testing.T) {
	for _, c := range []struct{ file, as, want string }{
		{"page.md", "page.md", `
4: where for if
4: also where
5: whoever
5: bear
7: where for if
9: who does
9: is told
10: beside
18: Where it is so
19: is no
20: one who
20: befall
20: that one
22: what does`},
		{"code.txt", "code.go", `
4: where for if
5: also where
5: anew
11: beside
13: one's own
14: at the least`},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range find(c.as, text) {
			got += fmt.Sprintf("\n%d: %s", f.line, f.pattern.name)
		}
		if got != c.want {
			t.Errorf("%s: found%s\nwant%s", c.file, got, c.want)
		}
	}
}

// Only what is new counts, and a find that begins on an old line and ends on a new one is new.
func TestSince(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		args = append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile("page.md", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "--quiet")
	write("Whoever reads it\nis served also\nif all is well.\n")
	git("add", ".")
	git("commit", "--quiet", "-m", "a page")
	for _, c := range []struct {
		text string
		bad  int
		want string
	}{
		{"Whoever reads it\nis served also\nif all is well.\n", 0, ""},
		{"Whoever reads it\nis served also\nif all are well.\n++ more\n", 1, "page.md:2: also if: also if\n"},
		{"New.\n\nWhoever reads it\nis served also\nif all is well.\n\nMend it, if asked: it is told so.\n", 1, "page.md:7: mend: Mend\npage.md:7: is told: is told\n"},
	} {
		write(c.text)
		var out bytes.Buffer
		bad, err := run(&out, "HEAD", false, nil)
		if err != nil || bad != c.bad || !strings.HasPrefix(out.String(), c.want) || c.want == "" && strings.Contains(out.String(), "page.md") {
			t.Errorf("%q: %d, %v\n%s", c.text, bad, err, out.String())
		}
	}
	if _, err := run(&bytes.Buffer{}, "none", false, nil); err == nil {
		t.Error("a revision that is not there passes")
	}
}
