// Prose counts turns of phrase that make people read a sentence twice, in Markdown files and
// in comments of Go. The list is in patterns.go. Code is not looked at: neither blocks nor
// what is between backticks.
//
//	prose [-since REV] [-totals] [FILE...]
//
// It prints each find as file:line: pattern: text, and then a total for each pattern. Without
// files it looks at all that git knows, or at all below the working directory if there is no git.
// With -since it prints only what is on lines that were added since REV. With -since or with files
// it fails if that is anything, but for what is often right.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	since := flag.String("since", "", "fail if lines that were added since this revision have any of it")
	quiet := flag.Bool("totals", false, "print the totals alone")
	flag.Parse()
	bad, err := run(os.Stdout, *since, *quiet, flag.Args())
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	case (*since != "" || flag.NArg() > 0) && bad > 0:
		fmt.Fprintf(os.Stderr, "prose: %d turns of phrase that people read twice: see above what to write instead\n", bad)
		os.Exit(1)
	}
}

// run looks at the files, and returns how much it has found in them that is not often right.
func run(out io.Writer, since string, quiet bool, files []string) (bad int, err error) {
	if len(files) == 0 {
		if files, err = all(); err != nil {
			return 0, err
		}
	}
	var fresh map[string][]int
	if since != "" {
		if fresh, err = added(since); err != nil {
			return 0, err
		}
	}
	count, total := map[string]int{}, 0
	for _, name := range files {
		name = filepath.ToSlash(filepath.Clean(name))
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // git still knows it
		} else if err != nil {
			return 0, err
		}
		for _, f := range find(name, text) {
			if since != "" && !slices.ContainsFunc(fresh[name], func(n int) bool { return f.line <= n && n <= f.last }) {
				continue
			}
			count[f.pattern.name]++
			total++
			if !f.pattern.often {
				bad++
			}
			if !quiet {
				fmt.Fprintf(out, "%s:%d: %s: %s\n", name, f.line, f.pattern.name, f.text)
			}
		}
	}
	for _, p := range patterns {
		if n := count[p.name]; n > 0 {
			fmt.Fprintf(out, "%6d  %s: write %s\n", n, p.name, p.instead)
		}
	}
	fmt.Fprintf(out, "%6d  in all\n", total)
	return bad, nil
}

// all are the files to look at, from the working directory.
func all() (files []string, err error) {
	list, err := exec.Command("git", "ls-files", "-z", "*.go", "*.md").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if name != "" && !strings.Contains("/"+name, "/testdata/") {
			files = append(files, name)
		}
	}
	return files, nil
}

var hunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// added are the numbers of the lines that are in the working tree and were not in rev, by file.
func added(rev string) (map[string][]int, error) {
	cmd := exec.Command("git", "-c", "core.quotePath=false", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--relative", "--dst-prefix=b/", rev, "--", "*.go", "*.md")
	cmd.Stderr = os.Stderr
	diff, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", rev, err)
	}
	return addedBy(diff), nil
}

// addedBy reads a diff that has no context.
func addedBy(diff []byte) map[string][]int {
	lines := map[string][]int{}
	file, left := "", 0 // left is what is still to come of the hunk's added lines
	for line := range bytes.Lines(diff) {
		text := strings.TrimRight(string(line), "\n")
		switch name, is := strings.CutPrefix(text, "+++ b/"); {
		case left > 0 && strings.HasPrefix(text, "+"):
			left--
		case is:
			file = strings.TrimSuffix(name, "\t")
		default:
			m := hunk.FindStringSubmatch(text)
			if m == nil {
				continue
			}
			first, _ := strconv.Atoi(m[1])
			n := 1
			if m[2] != "" {
				n, _ = strconv.Atoi(m[2])
			}
			for i := range n {
				lines[file] = append(lines[file], first+i)
			}
			left = n
		}
	}
	return lines
}
