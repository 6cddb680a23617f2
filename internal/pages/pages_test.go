package pages

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// forUsers are the pages that the index must have, and that are each for one kind of user.
var forUsers = []string{"go-service.md", "batch-job.md", "request-router.md", "cron.md", "kubernetes.md", "without-go.md"}

// Every block of a page is of a kind that some test checks, and what is Go is in a file of the
// repository, word for word and in one piece: so it was compiled. A program is run by a test of
// its own, which names the page.
func TestBlocks(t *testing.T) {
	programs := 0
	for page, text := range pages(t) {
		blocks, err := Blocks(page, text)
		if err != nil {
			t.Error(err)
		}
		for _, b := range blocks {
			if !slices.Contains(Langs(), b.Lang) {
				t.Errorf("%v: no test knows what to do with a block of %q; there are %q", b, b.Lang, Langs())
			}
			if b.Lang != "go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(b.Note)))
			source := strings.ReplaceAll(string(text), "\r\n", "\n")
			switch {
			case b.Note == "" || err != nil:
				t.Errorf("%v: the comment above the block names no file of the repository (%q): %v", b, b.Note, err)
			case !contains(source, b.Text):
				t.Errorf("%v: this is not what %s says:\n%s", b, b.Note, b.Text)
			}
			if !strings.HasPrefix(b.Text, "package main\n") {
				continue
			}
			programs++
			if !strings.HasSuffix(source, "\n"+b.Text) {
				t.Errorf("%v: this is not the whole of %s", b, b.Note)
			}
			if !tested(t, filepath.Dir(filepath.FromSlash(b.Note)), "docs/"+page) {
				t.Errorf("%v: no test beside %s names docs/%s, and runs it as the page says", b, b.Note, page)
			}
		}
	}
	if programs < 3 {
		t.Errorf("%d programs on all pages: are they still found?", programs)
	}
}

// contains reports whether text has the lines of a block, all indented alike.
func contains(text, block string) bool {
	for tabs := range 4 {
		indented := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, strings.Repeat("\t", tabs)+"$1")
		if strings.Contains("\n"+text, "\n"+indented) {
			return true
		}
	}
	return false
}

// tested reports whether a test of a directory names a page.
func tested(t *testing.T, dir, page string) bool {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(text), page)
	})
}

var link = regexp.MustCompile(`\]\(([^)#:]*)(#[^):]*)?\)`)

// Links into the repository lead somewhere, also to a heading.
func TestLinks(t *testing.T) {
	links := 0
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			links++
			to := filepath.Join(root, "docs", filepath.FromSlash(m[1]))
			if m[1] == "" {
				to = filepath.Join(root, "docs", page)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("docs/%s: %v", page, err)
			} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
				t.Errorf("docs/%s: %s has no heading %s", page, m[1], m[2])
			}
		}
	}
	if links < 20 {
		t.Errorf("%d links on all pages: are they still found?", links)
	}
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 -]`)
)

// anchors are a page's headings as GitHub makes anchors of them.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		all = append(all, "#"+strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// The index leads to every page, and the README to the index.
func TestIndex(t *testing.T) {
	all := pages(t)
	for _, page := range slices.Concat(forUsers, slices.Collect(maps.Keys(all))) {
		if page != "README.md" && !strings.Contains(all["README.md"], "("+page+")") {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
	top, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(top), "(docs/README.md)") {
		t.Error("README.md has no link to docs/README.md")
	}
}

// A page for a kind of user answers the same questions as the others.
func TestSections(t *testing.T) {
	all := pages(t)
	for _, page := range forUsers {
		for _, section := range []string{"\n## What to set\n", "\n## What happens at a fail-over\n", "\n## Three mistakes\n"} {
			if !strings.Contains(all[page], section) {
				t.Errorf("docs/%s: no section %s", page, strings.TrimSpace(section))
			}
		}
		if lines := strings.Count(fenced.ReplaceAllString(all[page], ""), "\n"); lines > 110 {
			t.Errorf("docs/%s: %d lines beside its blocks: say less, and link", page, lines)
		}
		_, mistakes, _ := strings.Cut(all[page], "\n## Three mistakes\n")
		mistakes, _, _ = strings.Cut(mistakes, "\n## ")
		if n := strings.Count(mistakes, "\n- **"); n != 3 {
			t.Errorf("docs/%s: %d mistakes", page, n)
		}
	}
}

// What stands for any text, and for any lines, and what does not.
func TestPrints(t *testing.T) {
	for i, c := range []struct {
		want, printed string
		ok            bool
	}{
		{"a\nb", "a\nb\n", true},
		{"a …c", "a bc", true},
		{"…\nb\n…", "a\nb\nc", true},
		{"a.c", "abc", false},
		{"a\nb", "a\nx\nb", false},
		{"a", "a\nb", false},
		{"a\nb", "a", false},
		{"a\n…\nb", "a\nc", false},
	} {
		if err := Prints(c.want, c.printed); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
	for _, text := range []string{"```go\n", "  ```go\n  ```\n"} {
		if _, err := Blocks("x.md", text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if _, err := Read(root, "none.md"); err == nil {
		t.Error("a page that is not there is read")
	}
	blocks, err := Blocks("x.md", "<!-- a.go -->\n```go\nx\n```\n\n```sh\ny\n```\n")
	if got := fmt.Sprintf("%q %v", blocks, err); len(blocks) != 2 || err != nil || blocks[0].Note != "a.go" || blocks[1].Note != "" || blocks[1].Text != "y\n" || blocks[0].Line != 2 {
		t.Error(got)
	}
}
