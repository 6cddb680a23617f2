// Package repo reads the modules of this repository: those that go.work binds, which are
// released together, and the others, which only tests and tools use.
package repo

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Module is one module of the repository.
type Module struct {
	Dir    string // from the root, with slashes; "." is the root's own
	Path   string
	InWork bool // go.work binds it
	Tagged bool // it is released: users import or install it, or what they do requires it
	Needs  []string
}

// ownUse is below which directories modules are that no user imports or installs.
var ownUse = []string{"bench", "docs", "examples", "internal", "tools"}

// young is below which directories modules are that stay v0 when the root is v1: shard, what
// has its types, and the adapters, which follow APIs of others.
var young = []string{"adapters", "legrpc", "lehttp", "leotel", "leprom", "leslog", "shard"}

// command is not imported, so it may require young modules and have the root's version.
const command = "cmd/leaderelect"

// Tag returns the module's tag at that version, as in deciders/s3/v0.1.0.
func (m Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// Repo is the repository.
type Repo struct {
	Root     string            // its directory
	Path     string            // the root module's
	Modules  []Module          // each after those that it needs
	Versions map[string]string // by path, what requirements of those in go.work name: v0.0.0, or the last release
}

// Ours reports whether path is a module of the repository.
func (r *Repo) Ours(path string) bool {
	return path == r.Path || strings.HasPrefix(path, r.Path+"/")
}

// Young reports whether the module stays v0 when the root is v1.
func (r *Repo) Young(path string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(path, r.Path+"/"), "/")
	return slices.Contains(young, top)
}

// Find returns the directory, at or above the working directory, that holds go.work.
func Find() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.work above the working directory: run this in the source tree")
		}
		dir = parent
	}
}

// Load reads the repository at root. It fails if go.work does not replace each module that
// it uses, at the version that requirements of it name.
func Load(root string) (*Repo, error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return nil, err
	}
	r := &Repo{Root: root, Versions: map[string]string{}}
	used := map[string]bool{}
	for _, u := range work.Use {
		used[filepath.ToSlash(filepath.Clean(u.Path))] = true
	}
	if err := r.read(used); err != nil {
		return nil, err
	}
	for _, p := range work.Replace {
		if r.Ours(p.Old.Path) {
			r.Versions[p.Old.Path] = p.Old.Version
		}
	}
	for _, m := range r.Modules {
		want := func(p *modfile.Replace) bool {
			return p.Old.Path == m.Path && filepath.ToSlash(filepath.Clean(p.New.Path)) == m.Dir
		}
		if m.InWork && !slices.ContainsFunc(work.Replace, want) {
			return nil, fmt.Errorf("%s: add this line, without which modules that were never published are looked up: replace %s %s => ./%s", name, m.Path, r.Versions[r.Path], m.Dir)
		}
	}
	return r, r.sort()
}

// read finds all go.mod files.
func (r *Repo) read(used map[string]bool) error {
	err := filepath.WalkDir(r.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n := d.Name(); d.IsDir() && path != r.Root && (strings.HasPrefix(n, ".") || n == "node_modules" || n == "testdata" || n == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || d.Name() != "go.mod" {
			return nil
		}
		f, err := Mod(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(r.Root, filepath.Dir(path))
		if err != nil {
			return err
		}
		m := Module{Dir: filepath.ToSlash(dir), Path: f.Module.Mod.Path, InWork: used[filepath.ToSlash(dir)]}
		for _, q := range f.Require {
			m.Needs = append(m.Needs, q.Mod.Path) // sort keeps ours
		}
		if m.Dir == "." {
			r.Path = m.Path
		}
		r.Modules = append(r.Modules, m)
		return nil
	})
	if err == nil && r.Path == "" {
		err = fmt.Errorf("%s has no go.mod", r.Root)
	}
	return err
}

// sort puts each module behind those of ours that it needs.
func (r *Repo) sort() error {
	byPath := map[string]Module{}
	for i, m := range r.Modules {
		m.Needs = slices.DeleteFunc(m.Needs, func(p string) bool { return !r.Ours(p) })
		r.Modules[i], byPath[m.Path] = m, m
	}
	var sorted []Module
	state := map[string]int{} // 1: being visited, 2: sorted
	var visit func(m Module) error
	visit = func(m Module) error {
		switch state[m.Path] {
		case 1:
			return fmt.Errorf("%s needs itself, by way of others: modules that are released together must not", m.Path)
		case 2:
			return nil
		}
		state[m.Path] = 1
		for _, p := range m.Needs {
			need, ok := byPath[p]
			if !ok {
				return fmt.Errorf("%s requires %s, which is not in the repository", m.Path, p)
			}
			if err := visit(need); err != nil {
				return err
			}
		}
		state[m.Path] = 2
		sorted = append(sorted, m)
		return nil
	}
	for _, m := range r.Modules {
		if err := visit(m); err != nil {
			return err
		}
	}
	r.Modules = sorted
	return r.tag()
}

// versionLike returns the version of a module in go.work that is young if path is.
func (r *Repo) versionLike(path string) string {
	for other, v := range r.Versions {
		if r.Young(other) == r.Young(path) {
			return v
		}
	}
	return r.Versions[r.Path]
}

// tag says which modules are tagged.
func (r *Repo) tag() error {
	needed := map[string]string{} // and by which
	for i, m := range slices.Backward(r.Modules) {
		top, _, _ := strings.Cut(m.Dir, "/")
		by, is := needed[m.Path]
		if !is && slices.Contains(ownUse, top) {
			continue
		}
		if !m.InWork {
			if by != "" {
				by = ": " + by + " requires it"
			}
			return fmt.Errorf("%s is to be released%s. Add two lines to go.work: use ./%s and replace %s %s => ./%s", m.Dir, by, m.Dir, m.Path, r.versionLike(m.Path), m.Dir)
		}
		r.Modules[i].Tagged = true
		for _, p := range m.Needs {
			if r.Young(p) && !r.Young(m.Path) && m.Dir != command {
				return fmt.Errorf("%s would be v1 with the root, and requires %s, which stays v0: see young in tools/internal/repo", m.Dir, p)
			}
			needed[p] = m.Dir
		}
	}
	return nil
}

// Mod parses a go.mod file.
func Mod(name string) (*modfile.File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(name, text, nil)
}
