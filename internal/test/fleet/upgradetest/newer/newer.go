// Package newer makes a newer version of the library out of this one, for tests of
// upgrades: its record has one more field, by an overlay of the go command.
package newer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The newer version counts, in a field of the record, how often a newer version has
// written it: RaceEntry.Generation. With the variable Must in its environment, it says
// that the field must be understood.
const (
	Field = "generation"
	Must  = "UPGRADETEST_MUST_UNDERSTAND"
)

// changes is what the newer version has changed. If a change to the code moves the text
// that is replaced here, move this along.
var changes = []struct{ file, old, new string }{
	{"racedecider.go", "	Unsynchronized bool\n", "	Unsynchronized bool\n	Generation uint64\n"},
	{"lease.go", "l.base.of.Extra,", "l.base.of.Extra,\n		Generation: l.base.of.Generation + 1,"},
	{"lease.go", "Extra: b.Extra,", "Extra: b.Extra, Generation: b.Generation,"},
	{"deciders/record/record.go", "{ return &e.Unsynchronized }),", "{ return &e.Unsynchronized }),\n	plain(\"generation\", false, func(e *entry) *uint64 { return &e.Generation }),"},
	{"deciders/record/record.go", "	\"maps\"\n", "	\"maps\"\n	\"os\"\n"},
	{"deciders/record/record.go", "	var all []string\n", `	if os.Getenv("` + Must + `") != "" {
		e = e.Clone()
		if e.Extra == nil {
			e.Extra = map[string]string{}
		}
		e.Extra[mustUnderstand] = "[\"generation\"]"
	}
	var all []string
`},
}

// Overlay writes the newer version of the library at root into dir, and returns the file
// that go build's -overlay wants.
func Overlay(root, dir string) (list string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	sources := map[string]string{} // by path
	for _, c := range changes {
		path := filepath.Join(root, c.file)
		if sources[path] == "" {
			source, err := os.ReadFile(path)
			if err != nil {
				return "", err
			}
			sources[path] = string(source)
		}
		if n := strings.Count(sources[path], c.old); n != 1 {
			return "", fmt.Errorf("%s has what the newer version replaces %d times, not once: move it along: %q", path, n, c.old)
		}
		sources[path] = strings.Replace(sources[path], c.old, c.new, 1)
	}
	replace := map[string]string{}
	for path, source := range sources {
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace))+filepath.Base(path))
		if err := os.WriteFile(replace[path], []byte(source), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, overlay, 0o600)
}
