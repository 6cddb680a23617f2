package pages

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/record"
)

const root = "../../.."

func pages(t *testing.T) map[string]string {
	t.Helper()
	all, err := All(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every block of a page is of a kind that some test checks, and what is Go is in a file of the
// repository, word for word and in one piece: so it was compiled. A program that a block of sh
// starts is run by a test of its own, which names the page.
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
			if b.Lang == "sh" && b.Note != "" {
				programs++
				if !tested(t, filepath.FromSlash(b.Note), "docs/"+page) {
					t.Errorf("%v: no test in %s names docs/%s, and runs it as the page says", b, b.Note, page)
				}
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
	for _, where := range []string{"*.md", ".github/*.md", "cmd/leaderelect/*.md", "cmd/leaderelect/docs/*.md", "deploy/*/*.md", "docs/*.md", "docs/*/*.md", "internal/*.md", "internal/test/apart/bench/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, where))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			links += checkLinks(t, file)
		}
	}
	if links < 100 {
		t.Errorf("%d links on all pages: are they still found?", links)
	}
}

// checkLinks follows the links of a file, and returns how many it has.
func checkLinks(t *testing.T, file string) int {
	t.Helper()
	all := link.FindAllStringSubmatch(read(t, file), -1)
	for _, m := range all {
		to := filepath.Join(filepath.Dir(file), filepath.FromSlash(m[1]))
		if m[1] == "" {
			to = file
		}
		if _, err := os.Stat(to); err != nil {
			t.Errorf("%s: %v", file, err)
		} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
			t.Errorf("%s: %s has no heading %s", file, m[1], m[2])
		}
	}
	return len(all)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

var (
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^a-z0-9 -]`)
)

// anchors are a page's headings as GitHub makes anchors of them.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, m := range heading.FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, "#"+strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// The program on the front page works.
func TestFrontPage(t *testing.T) {
	blocks, err := Blocks("README.md", read(t, filepath.Join(root, "README.md")))
	if err != nil || len(blocks) != 1 || blocks[0].Lang != "go" {
		t.Fatalf("README.md has the blocks %v (%v), want one program", blocks, err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program+".go", []byte(blocks[0].Text), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", program, program+".go")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("README.md: %v\n%s", err, out)
	}
	if runtime.GOOS == "windows" {
		return // deciders/file refuses
	}
	cmd := exec.Command(program)
	cmd.Dir = dir
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	printed := ""
	for lines.Scan() {
		if printed += lines.Text() + "\n"; strings.HasPrefix(lines.Text(), "leading") {
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := Prints("leading, fencing token …\n…\ndone: …", printed); err != nil {
		t.Errorf("README.md: %v\n%s", err, printed)
	}
}

// A block of json is a record, and is just as this library writes it.
func TestRecordBlocks(t *testing.T) {
	found := 0
	for page, text := range pages(t) {
		blocks, err := Blocks(page, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.Lang != "json" {
				continue
			}
			found++
			e, err := record.Unmarshal(b.String(), []byte(b.Text))
			if err != nil {
				t.Error(err)
			} else if written, err := record.Marshal(e); err != nil || string(written)+"\n" != b.Text {
				t.Errorf("%v: it is written as\n%s, %v", b, written, err)
			}
		}
	}
	if found < 2 {
		t.Errorf("%d blocks: are they still found?", found)
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

var (
	ruleRow  = regexp.MustCompile(`(?m)^\| (\d+) \| .+? \| (.+?) \|`)
	ruleTest = regexp.MustCompile("`(Test\\w+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	ofLease  = regexp.MustCompile(`^TestLeaseRule(\d)`)
	numbered = regexp.MustCompile(`^Test(?:Rule|Lifeline)(\d\d)`)
)

// testsOf are the names of a package's tests.
func testsOf(t *testing.T, pattern string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// Each rule of docs/rules.md has the tests that the page names, and each test that is named for
// a rule has one there.
func TestRulesAreTested(t *testing.T) {
	core, shards, _ := strings.Cut(pages(t)["rules.md"], "\n## A group's shards\n")
	core, lifelines, _ := strings.Cut(core, "\n## Lifelines\n")
	others := slices.Concat(testsOf(t, "deciders/*"), testsOf(t, "lifeline"), testsOf(t, "."))
	for _, part := range []struct {
		of, dir, prefix, text string
		least                 int
	}{
		{"one election", "internal/test/rules", "TestRule", core, 20},
		{"lifelines", "internal/test/rules", "TestLifeline", lifelines, 8},
		{"a group's shards", "shard", "TestRule", shards, 13},
	} {
		tests := append(testsOf(t, part.dir), others...)
		has := func(prefix string) bool {
			for _, name := range tests {
				if name == prefix || numbered.MatchString(prefix) && strings.HasPrefix(name, prefix) {
					return true
				}
			}
			return false
		}
		rows := ruleRow.FindAllStringSubmatch(part.text, -1)
		if len(rows) < part.least {
			t.Errorf("%d rules of %s: are they still found?", len(rows), part.of)
		}
		for i, row := range rows {
			if row[1] != strconv.Itoa(i+1) {
				t.Errorf("rule %s of %s comes as number %d", row[1], part.of, i+1)
			}
			named := ruleTest.FindAllStringSubmatch(row[2], -1)
			if len(named) == 0 {
				t.Errorf("rule %s of %s names no test", row[1], part.of)
			}
			for _, m := range named {
				if !has(m[1]) {
					t.Errorf("rule %s of %s: there is no %s", row[1], part.of, m[1])
				}
			}
		}
		if part.of == "one election" {
			for _, name := range testsOf(t, ".") {
				if n := ofLease.FindStringSubmatch(name); n != nil && !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == n[1] && strings.Contains(row[2], "`"+name+"`") }) {
					t.Errorf("%s is not named by rule %s", name, n[1])
				}
			}
		}
		for _, name := range testsOf(t, part.dir) {
			if !strings.HasPrefix(name, part.prefix) {
				continue
			}
			if n := numbered.FindStringSubmatch(name); n != nil {
				if number, _ := strconv.Atoi(n[1]); number < 1 || number > len(rows) {
					t.Errorf("%s is for no rule of %s", name, part.of)
				}
			} else if digit := strings.TrimPrefix(name, part.prefix)[0]; digit >= '0' && digit <= '9' {
				t.Errorf("%s: a rule's test has its number in two digits", name)
			}
		}
	}
}
