package pictures

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What docs/operations.md says that is logged and measured is in the code.
func TestOperations(t *testing.T) {
	root := filepath.Join("..", "..")
	code := func(patterns ...string) string {
		var all strings.Builder
		for _, p := range patterns {
			files, err := filepath.Glob(filepath.Join(root, p))
			if err != nil || len(files) == 0 {
				t.Fatal(p, err)
			}
			for _, f := range files {
				if text, err := os.ReadFile(f); err == nil && !strings.HasSuffix(f, "_test.go") {
					all.Write(text)
				}
			}
		}
		return all.String()
	}
	core, metrics := code("*.go"), code("leprom/*.go", "internal/measure/*.go")
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for row := range strings.Lines(string(text)) {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || strings.HasPrefix(row, "| what") {
			continue
		}
		rows++
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			if word := m[1]; !strings.Contains(core, `"`+word) && !strings.Contains(core, "leaderelection: "+word) && !strings.Contains(core, ") "+word+"(") {
				t.Errorf("%q is said nowhere:\n%s", word, row)
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			if !strings.Contains(metrics, `"`+m[1]+`"`) && !strings.Contains(metrics, m[1]) {
				t.Errorf("%q is measured nowhere:\n%s", m[1], row)
			}
		}
	}
	if rows < 14 {
		t.Errorf("%d rows are read", rows)
	}
}
