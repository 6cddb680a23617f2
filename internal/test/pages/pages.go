// Package pages reads the pages of docs, for the tests that hold them to the code: whatever a
// page has is found by what it looks like, so that a page that is added is checked, too.
//
//   - A block of Go has a comment above it that names its file: <!-- examples/x/main.go -->.
//   - A block of sh is run as it stands: by the tests of the program whose directory is named
//     above it, <!-- examples/x -->, or by the command's.
//   - A block of text is what the block before prints: … stands for anything, and a line
//     that is just … for any lines.
//   - A block of crontab is run line by line.
//   - A block of yaml is the chart's values, and has <!-- values.yaml --> above it: make packages
//     renders the chart with them.
//   - A block of json is a record, as a store has it.
//   - A block of console has what is typed where no test is, in a cluster.
package pages

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Block is a fenced block of a page.
type Block struct {
	Page string // the page's file name
	Line int    // in the page, of the fence
	Lang string // the fence's word, as go
	Note string // what the comment above it says, or empty
	Text string
}

// String says where the block is.
func (b Block) String() string { return fmt.Sprintf("docs/%s:%d", b.Page, b.Line) }

// Langs are the words that the fence of a block may have: of each a test says what becomes of
// the block.
func Langs() []string { return []string{"go", "sh", "text", "crontab", "yaml", "console", "json"} }

// All returns the pages of docs and the guides of docs/migrate, by their paths below docs, with their text.
// The root is that of the repository.
func All(root string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	guides, err := filepath.Glob(filepath.Join(root, "docs", "migrate", "*.md"))
	if err != nil {
		return nil, err
	}
	if len(files) < 3 || len(guides) < 3 {
		return nil, fmt.Errorf("%d pages in docs, and %d guides in docs/migrate: are they still found?", len(files), len(guides))
	}
	pages := make(map[string]string)
	for _, f := range append(files, guides...) {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		page, err := filepath.Rel(filepath.Join(root, "docs"), f)
		if err != nil {
			return nil, err
		}
		pages[filepath.ToSlash(page)] = strings.ReplaceAll(string(text), "\r\n", "\n") // as git may write it on Windows
	}
	return pages, nil
}

// Read is All and Blocks: the blocks of a page.
func Read(root, page string) ([]Block, error) {
	all, err := All(root)
	if err != nil {
		return nil, err
	}
	text, is := all[page]
	if !is {
		return nil, fmt.Errorf("there is no docs/%s", page)
	}
	return Blocks(page, text)
}

var note = regexp.MustCompile(`^<!-- (.*) -->$`)

// Blocks returns the fenced blocks of a page, in order. One that does not end, or is indented,
// is an error.
func Blocks(page, text string) (blocks []Block, err error) {
	var open *Block
	before := ""
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case !fence && strings.HasPrefix(strings.TrimSpace(line), "```"):
			return nil, fmt.Errorf("docs/%s:%d: a fence is indented", page, i+1)
		case fence && open == nil:
			open = &Block{Page: page, Line: i + 1, Lang: line[3:]}
			if m := note.FindStringSubmatch(before); m != nil {
				open.Note = m[1]
			}
		case fence:
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.Text += line + "\n"
		}
		before = line
	}
	if open != nil {
		return nil, fmt.Errorf("%v: the block does not end", open)
	}
	return blocks, nil
}

// Prints returns an error that names the first line of a block of text that is not what was
// printed at its place. Any number of lines may have been printed where a line is … alone.
func Prints(want, printed string) error {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	at, skip := 0, false
	for _, w := range strings.Split(strings.TrimSpace(want), "\n") {
		if w == "…" {
			skip = true
			continue
		}
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(w)), "…", ".*") + "$")
		for skip && at < len(lines) && !like.MatchString(strings.TrimSpace(lines[at])) {
			at++
		}
		if at == len(lines) || !like.MatchString(strings.TrimSpace(lines[at])) {
			return fmt.Errorf("it does not print, at its place,\n%s\nbut\n%s", w, printed)
		}
		at, skip = at+1, false
	}
	if !skip && at < len(lines) {
		return errors.New("it prints more:\n" + strings.Join(lines[at:], "\n"))
	}
	return nil
}

// Ports are free addresses of this machine, by those of a page that they stand for.
type Ports map[string]string

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// Here returns text with a free address in the place of each that it has. All that were chosen
// are different. They are below those that systems give out by themselves, so that no other
// program is given one before it is used.
func (p Ports) Here(text string) (here string, err error) {
	tries := 0
	here = address.ReplaceAllStringFunc(text, func(addr string) string {
		for p[addr] == "" {
			if tries++; tries > 1000 {
				err = errors.New("no port is free")
				return addr
			}
			free := fmt.Sprint("127.0.0.1:", 20000+rand.IntN(12000))
			l, taken := net.Listen("tcp", free)
			if taken != nil {
				continue
			}
			_ = l.Close()
			if !slices.Contains(slices.Collect(maps.Values(p)), free) {
				p[addr] = free
			}
		}
		return p[addr]
	})
	return here, err
}
