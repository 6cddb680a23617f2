package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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
