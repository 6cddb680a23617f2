// Affected reads import paths from its standard input, one in a line, and prints those whose
// tests a change can affect: those packages in which, or in what they and their tests import,
// a file has changed since the commit of -since. Changes that are not committed count.
//
// A change of what all tests rest on (a go.mod, the Makefile, the test servers) affects all.
// Pages affect none: make test reads them, and it is not filtered.
//
//	go list ./... | affected -since origin/main
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

func main() {
	since := flag.String("since", "", "the `commit` that the change is made to")
	flag.Parse()
	if err := run(*since, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "affected:", err)
		os.Exit(1)
	}
}

func run(since string, in io.Reader, out io.Writer) error {
	if since == "" {
		return errors.New("-since is needed: the commit that the change is made to")
	}
	root, err := repo.Find()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	asked := strings.Fields(string(text))
	if len(asked) == 0 {
		return nil
	}
	// Both the old name and the new one of a file that was renamed, and files that are not
	// tracked yet, are changes.
	changed, err := output(root, "git", "diff", "--name-only", "--no-renames", "-z", since, "--")
	if err != nil {
		return err
	}
	added, err := output(root, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	packages, err := list(root, asked)
	if err != nil {
		return err
	}
	files := strings.FieldsFunc(string(changed)+string(added), func(r rune) bool { return r == 0 })
	hasGo := func(dir string) bool {
		found, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go")) // the pattern is right
		return len(found) > 0
	}
	for _, p := range affected(asked, packages, files, hasGo) {
		fmt.Fprintln(out, p)
	}
	return nil
}

// A pkg is a package of the repository, as it is or as it is compiled for a test.
type pkg struct {
	ImportPath string
	Dir        string // from the root of the repository, with slashes
	ForTest    string // the package whose test it is compiled for
	Deps       []string
	Standard   bool
}

// list returns the packages, their tests, and what these import, as far as it is the repository's.
func list(root string, asked []string) (packages []pkg, err error) {
	args := append([]string{"list", "-test", "-deps", "-json=ImportPath,Dir,ForTest,Deps,Standard"}, asked...)
	text, err := output(root, "go", args...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		dir, err := filepath.Rel(root, p.Dir)
		if p.Dir == "" || p.Standard || err != nil || strings.HasPrefix(dir, "..") {
			continue
		}
		p.Dir = filepath.ToSlash(dir)
		packages = append(packages, p)
	}
}

// affected returns those packages that were asked for and that the changed files can affect.
func affected(asked []string, packages []pkg, files []string, hasGo func(dir string) bool) []string {
	byDir := map[string]string{} // the others have no part in what was asked for
	for _, p := range packages {
		byDir[p.Dir] = plain(p.ImportPath)
	}
	changed := map[string]bool{}
	for _, f := range files {
		switch what(f) {
		case nothing:
		case everything:
			return asked
		case itsPackage:
			if p, ok := byDir[inside(f, hasGo)]; ok {
				changed[p] = true
			}
		}
	}
	is := map[string]bool{}
	for _, p := range packages {
		for _, d := range append(p.Deps, p.ImportPath) {
			if changed[plain(d)] {
				is[plain(p.ImportPath)], is[p.ForTest] = true, true
			}
		}
	}
	var those []string
	for _, p := range asked {
		if is[p] {
			those = append(those, p)
		}
	}
	return those
}

// inside returns the directory of a file that has Go files, or else the first above it, as for
// testdata. It is "." for what was a package and is none any more, so that affects most.
func inside(file string, hasGo func(dir string) bool) string {
	dir := path.Dir(file)
	for dir != "." && (strings.Contains(dir+"/", "/testdata/") || !hasGo(dir)) {
		dir = path.Dir(dir)
	}
	return dir
}

// plain removes what go list adds to a package that is compiled for a test: " [p.test]", ".test",
// and the "_test" of a package of tests.
func plain(importPath string) string {
	importPath, _, _ = strings.Cut(importPath, " ")
	importPath = strings.TrimSuffix(importPath, ".test")
	return strings.TrimSuffix(importPath, "_test")
}

type reach int

const (
	itsPackage reach = iota
	nothing
	everything
)

// what says what a changed file affects.
func what(file string) reach {
	first, _, _ := strings.Cut(file, "/")
	base := path.Base(file)
	switch {
	case strings.Contains(file, "/testdata/"):
		return itsPackage
	case base == "go.mod", base == "go.sum", file == "go.work", file == "go.work.sum", file == "Makefile", first == ".ci",
		strings.HasPrefix(file, "internal/servers/"), strings.HasPrefix(file, "internal/stores/"):
		return everything
	case strings.HasSuffix(base, ".md"), first == ".github", first == "deploy", first == "packaging", first == "tools",
		first == "docs" && !strings.HasSuffix(base, ".go"), !strings.Contains(file, "/") && !strings.HasSuffix(base, ".go"):
		return nothing
	}
	return itsPackage
}

// output runs a command at the root of the repository, and returns what it prints.
func output(root, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args[:min(len(args), 6)], " "), err, strings.TrimSpace(said.String()))
	}
	return out, err
}
