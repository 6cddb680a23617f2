package migrate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// A guide's block of Go names its file in a comment above it.
var block = regexp.MustCompile("(?ms)(?:^<!-- ([^\\n]+) -->\\n)?^```go\\n(.*?)^```$")

// Every line of Go in a guide is in a file of the repository, word for word and in one
// piece, so that what a reader copies was compiled.
func TestGuides(t *testing.T) {
	guides, err := filepath.Glob(root + "/docs/migrate/*.md")
	if err != nil || len(guides) < 3 {
		t.Fatalf("guides %q, %v: want three or more", guides, err)
	}
	blocks := 0
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		if fences := strings.Count(string(text), "```go\n"); fences != len(block.FindAllString(string(text), -1)) {
			t.Errorf("%s: %d blocks of Go begin, and not as many end", guide, fences)
		}
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			blocks++
			file, code := m[1], m[2]
			if file == "" {
				t.Errorf("%s: no comment names the file of this block:\n%s", guide, code)
				continue
			}
			source, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Errorf("%s: %v", guide, err)
			} else if !strings.Contains("\n"+string(source), "\n"+code) {
				t.Errorf("%s: this is not what %s says:\n%s", guide, file, code)
			}
		}
	}
	if blocks < 1 {
		t.Errorf("%d blocks of Go in all guides: are they still found?", blocks)
	}
}

// Links between the guides, and from them into the repository, lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	guides, err := filepath.Glob(root + "/docs/migrate/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(guide), m[1])); err != nil {
				t.Errorf("%s: %v", guide, err)
			}
		}
	}
}
