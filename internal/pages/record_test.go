package pages

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// rows are the rows of a page's section, by what is in the first cell.
func rows(text, section string) map[string]string {
	_, text, _ = strings.Cut(text, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	found := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)$").FindAllStringSubmatch(text, -1) {
		found[m[1]] = m[2]
	}
	return found
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

// docs/record.md has each field of the record, and no other, and says what may be left out.
func TestRecordFields(t *testing.T) {
	data, err := record.Marshal(&leaderelection.RaceEntry{
		LeaderID: "a", HostPort: []string{"b"}, ConnectionParams: []byte("c"), TermLength: time.Second, WriteID: "w", Successor: "d",
		Unsynchronized: true, Hold: time.Second, Priority: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	least, err := record.Marshal(&leaderelection.RaceEntry{})
	if err != nil {
		t.Fatal(err)
	}
	var all, always map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(least, &always); err != nil {
		t.Fatal(err)
	}
	page := rows(pages(t)["record.md"], "Field by field")
	if got, want := slices.Sorted(maps.Keys(page)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("docs/record.md has the fields %q, the record has %q", got, want)
	}
	for name, row := range page {
		if _, is := always[name]; is != strings.HasSuffix(row, "| never |") {
			t.Errorf("docs/record.md: %s may be left out, or may not: %s", name, row)
		}
	}
}

// docs/record.md has each store that can be opened, and what it names there is in that store's
// package.
func TestRecordStores(t *testing.T) {
	page := rows(pages(t)["record.md"], "Where each store has it")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^//\t(deciders/\S+) `).FindAllStringSubmatch(read(t, "deciders/open/open.go"), -1) {
		listed[m[1]] = true
		if page[m[1]] == "" {
			t.Errorf("the table of stores in docs/record.md lacks %s", m[1])
		}
	}
	if len(page) < 16 {
		t.Errorf("docs/record.md has only %d stores", len(page))
	}
	for store, row := range page {
		if !listed[store] {
			t.Errorf("docs/record.md has %s, which the list in deciders/open/open.go lacks", store)
		}
		code := source(t, store)
		if strings.HasPrefix(store, "deciders/sql/") {
			code += source(t, "deciders/sql")
		}
		for _, m := range span.FindAllStringSubmatch(row, -1) {
			if !strings.Contains(code, strings.ToLower(m[1])) {
				t.Errorf("docs/record.md: %s has no %s", store, m[1])
			}
		}
	}
}

// source is what the code of a directory says, without its tests, in lower case.
func source(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(all.String())
}
