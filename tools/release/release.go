package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

// Release is one that was made in a copy of the repository.
type Release struct {
	*repo.Repo // the copy
	Branch     string
	Tags       []string
	sums       map[string][]string // the lines of go.sum about a module
}

// Make makes a release of what is committed at root, in dir, which is empty: of the young
// modules with the version young, and of all others with version. If proxy is not empty it also
// writes the modules to that directory.
func Make(root, dir, version, young, proxy string) (*Release, error) {
	if semver.Canonical(version) != version || semver.Major(version) > "v1" {
		return nil, fmt.Errorf("%q is no version like v0.1.0: the module paths are for v0 and v1", version)
	}
	if semver.Canonical(young) != young || semver.Major(young) != "v0" {
		return nil, fmt.Errorf("%q is no version for shard and the other young modules, which stay v0 (docs/stability.md): give theirs as well, as in %s v0.9.0", young, version)
	}
	if out, err := git(root, "tag", "--list", version, "shard/"+young); err != nil || out != "" {
		return nil, fmt.Errorf("%s is released already: take the next version (%w)", out, err)
	}
	if _, err := git(root, "clone", "--quiet", "--no-tags", root, dir); err != nil {
		return nil, err
	}
	rep, err := repo.Load(dir)
	if err != nil {
		return nil, err
	}
	r := &Release{Repo: rep, Branch: "release/" + version, sums: map[string][]string{}}
	if _, err := git(dir, "checkout", "--quiet", "-b", r.Branch); err != nil {
		return nil, err
	}
	for path := range r.Versions {
		r.Versions[path] = version
		if r.Young(path) {
			r.Versions[path] = young
		}
	}
	if err := r.bump(); err != nil {
		return nil, err
	}
	for _, m := range r.Modules { // each after those whose sums it has
		if !m.InWork {
			continue // it replaces what it needs
		}
		if err := r.sum(m); err != nil {
			return nil, err
		}
		if m.Tagged {
			if r.sums[m.Path], err = pack(r.Repo, m, proxy); err != nil {
				return nil, fmt.Errorf("%s: %w", m.Dir, err)
			}
		}
	}
	return r, r.commit(root, version)
}

// bump makes all requirements of ours name the new versions, and go.work replace those.
func (r *Release) bump() error {
	for _, m := range r.Modules {
		name := filepath.Join(r.Root, filepath.FromSlash(m.Dir), "go.mod")
		f, err := repo.Mod(name)
		if err != nil {
			return err
		}
		for _, path := range m.Needs {
			if err := f.AddRequire(path, r.Versions[path]); err != nil {
				return err
			}
		}
		text, err := f.Format()
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	name := filepath.Join(r.Root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		return err
	}
	for _, p := range work.Replace {
		if i := slices.Index(p.Syntax.Token, p.Old.Version); i >= 0 && r.Ours(p.Old.Path) {
			p.Syntax.Token[i] = r.Versions[p.Old.Path]
		}
	}
	return os.WriteFile(name, modfile.Format(work.Syntax), 0o644)
}

// sum writes the sums of those of ours that m needs to its go.sum, for builds of its tag
// without go.work.
func (r *Release) sum(m repo.Module) error {
	name := filepath.Join(r.Root, filepath.FromSlash(m.Dir), "go.sum")
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if path, _, _ := strings.Cut(line, " "); !r.Ours(path) {
			lines = append(lines, line)
		}
	}
	for _, path := range m.Needs {
		lines = append(lines, r.sums[path]...)
	}
	slices.Sort(lines)
	return os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644)
}

// commit commits what was changed, as who would commit at root, and makes the tags.
func (r *Release) commit(root, version string) error {
	name, _ := git(root, "config", "user.name")
	email, _ := git(root, "config", "user.email")
	if email == "" { // a machine that only tries it
		name, email = "release", "release@localhost"
	}
	if _, err := git(r.Root, "-c", "user.name="+name, "-c", "user.email="+email, "-c", "commit.gpgSign=false",
		"commit", "--quiet", "--all", "--message", "Release "+version); err != nil {
		return err
	}
	for _, m := range r.Modules {
		if !m.Tagged {
			continue
		}
		tag := m.Tag(r.Versions[m.Path])
		if _, err := git(r.Root, "-c", "tag.gpgSign=false", "tag", tag); err != nil {
			return err
		}
		r.Tags = append(r.Tags, tag)
	}
	return nil
}

// show prints what was made.
func (r *Release) show(w io.Writer) error {
	stat, err := git(r.Root, "show", "--stat", "--format=%h %s")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\n%s: %d tags\n", stat, r.Branch, len(r.Tags))
	for _, tag := range r.Tags {
		fmt.Fprintln(w, " ", tag)
	}
	return nil
}

// put fetches the branch and the tags into the repository at root.
func (r *Release) put(root string) error {
	if out, err := git(root, "status", "--porcelain"); err != nil || out != "" {
		return fmt.Errorf("a release is of what is committed: commit or stash this first (%w)\n%s", err, out)
	}
	specs := []string{"refs/heads/" + r.Branch + ":refs/heads/" + r.Branch}
	for _, tag := range r.Tags {
		specs = append(specs, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	_, err := git(root, append([]string{"fetch", "--quiet", "--no-tags", r.Root}, specs...)...)
	return err
}

// git runs git in dir and returns what it prints, without the last line's end.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(failed.String()))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
