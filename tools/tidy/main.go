// Tidy does what go mod tidy does, in every module of the repository, or in those whose
// directories are given. The command itself does not look at go.work, and would ask the world
// for modules that are not released yet; here they are those of the working tree.
//
// With -diff it changes nothing: it prints what it would change, and fails if that is
// anything. GOFLAGS, GOPROXY and the rest of go's environment apply.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

func main() {
	diff := flag.Bool("diff", false, "change nothing, and fail if something is to be changed")
	flag.Parse()
	if err := run(*diff, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "tidy:", err)
		os.Exit(1)
	}
}

func run(diff bool, dirs []string) error {
	root, err := repo.Find()
	if err != nil {
		return err
	}
	r, err := repo.Load(root)
	if err != nil {
		return err
	}
	untidy := 0
	for _, m := range r.Modules {
		if len(dirs) > 0 && !slices.Contains(dirs, m.Dir) {
			continue
		}
		changed, err := tidy(r, m, diff)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Dir, err)
		}
		if changed {
			untidy++
		}
	}
	if diff && untidy > 0 {
		return fmt.Errorf("%d modules are not tidy: run make mod", untidy)
	}
	return nil
}

// tidy tidies one module, in copies of its go.mod and go.sum, and reports whether they are
// different then. It writes them back unless it is only to look.
func tidy(r *repo.Repo, m repo.Module, look bool) (changed bool, err error) {
	tmp, err := os.MkdirTemp("", "tidy")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	dir := filepath.Join(r.Root, filepath.FromSlash(m.Dir))
	mod, sum := filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")
	tmpMod, tmpSum := filepath.Join(tmp, "go.mod"), filepath.Join(tmp, "go.sum")
	f, err := repo.Mod(mod)
	if err != nil {
		return false, err
	}
	added, err := replaceOurs(r, m, f)
	if err != nil {
		return false, err
	}
	if err := write(tmpMod, f); err != nil {
		return false, err
	}
	oldSum, err := os.ReadFile(sum)
	if err == nil {
		err = os.WriteFile(tmpSum, oldSum, 0o600)
	} else if os.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		return false, err
	}
	cmd := exec.Command("go", "mod", "tidy", "-modfile="+tmpMod)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("go mod tidy: %w", err)
	}
	if f, err = repo.Mod(tmpMod); err != nil {
		return false, err
	}
	for _, path := range added {
		if err := f.DropReplace(path, ""); err != nil {
			return false, err
		}
	}
	all := requirements(r, f)
	f.SetRequireSeparateIndirect(nil) // else lines stay in the block that they are in
	f.Cleanup()
	f.SetRequireSeparateIndirect(all)
	if err := write(tmpMod, f); err != nil {
		return false, err
	}
	if err := keepOurs(r, oldSum, tmpSum); err != nil {
		return false, err
	}
	for name, tidied := range map[string]string{mod: tmpMod, sum: tmpSum} {
		differs, err := settle(name, tidied, look)
		if err != nil {
			return false, err
		}
		changed = changed || differs
	}
	return changed, nil
}

// replaceOurs makes f replace the modules of the repository by their directories, and returns
// which. It requires none that was not required: that would raise what others need.
func replaceOurs(r *repo.Repo, m repo.Module, f *modfile.File) (added []string, err error) {
	for _, o := range r.Modules {
		if !o.InWork || o.Path == m.Path || slices.ContainsFunc(f.Replace, func(p *modfile.Replace) bool { return p.Old.Path == o.Path }) {
			continue
		}
		if err := f.AddReplace(o.Path, "", filepath.Join(r.Root, filepath.FromSlash(o.Dir)), ""); err != nil {
			return nil, err
		}
		added = append(added, o.Path)
	}
	return added, nil
}

// requirements returns a copy of those of f, with go.work's versions of our modules.
func requirements(r *repo.Repo, f *modfile.File) []*modfile.Require {
	var all []*modfile.Require
	for _, q := range f.Require {
		if r.Ours(q.Mod.Path) {
			q.Mod.Version = r.Versions[q.Mod.Path]
		}
		all = append(all, &modfile.Require{Mod: q.Mod, Indirect: q.Indirect})
	}
	return all
}

func write(name string, f *modfile.File) error {
	f.Cleanup()
	f.SortBlocks()
	text, err := f.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// keepOurs adds to the tidied go.sum the lines about our own modules that old has. A release
// writes them; tidying drops them, as directories have no sums.
func keepOurs(r *repo.Repo, old []byte, tidied string) error {
	text, err := os.ReadFile(tidied)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	lines := strings.SplitAfter(string(text), "\n")
	for line := range strings.SplitAfterSeq(string(old), "\n") {
		if path, _, _ := strings.Cut(line, " "); r.Ours(path) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return os.WriteFile(tidied, []byte(strings.Join(slices.Compact(lines), "")), 0o600)
}

// settle makes name as tidied is, or shows what is different. No file is as good as an
// empty one.
func settle(name, tidied string, look bool) (differs bool, err error) {
	old, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	text, err := os.ReadFile(tidied)
	if err != nil {
		return false, err
	}
	if bytes.Equal(old, text) {
		return false, nil
	}
	if !look {
		return true, os.WriteFile(name, text, 0o644)
	}
	cmd := exec.Command("diff", "-u", "--label", name, "--label", name+" (tidy)", "-", tidied)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(old), os.Stdout, os.Stderr
	_ = cmd.Run() // it fails if it finds a difference
	return true, nil
}
