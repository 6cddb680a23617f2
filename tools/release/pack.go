package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"github.com/c8e606e4/leaderelection/tools/internal/repo"
)

// pack makes the module's zip file, as the go command makes it of a tag, and returns its two
// lines of go.sum. If proxy is not empty it writes the module there, as GOPROXY's protocol
// wants it (see go help goproxy).
func pack(r *repo.Repo, m repo.Module, proxy string) ([]string, error) {
	v := module.Version{Path: m.Path, Version: r.Versions[m.Path]}
	files, err := contents(r, m)
	if err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp("", "module*.zip")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := zip.Create(tmp, v, files); err != nil {
		return nil, err
	}
	sum, err := dirhash.HashZip(tmp.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(filepath.Join(r.Root, filepath.FromSlash(m.Dir), "go.mod"))
	if err != nil {
		return nil, err
	}
	modSum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(mod)), nil
	})
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("%s %s %s\n", v.Path, v.Version, sum), fmt.Sprintf("%s %s/go.mod %s\n", v.Path, v.Version, modSum)}
	if proxy == "" {
		return lines, nil
	}
	return lines, serve(proxy, v, mod, tmp.Name())
}

// serve puts a module where a file system proxy has it.
func serve(proxy string, v module.Version, mod []byte, zipped string) error {
	path, err := module.EscapePath(v.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(zipped)
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": v.Version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{v.Version + ".zip": data, v.Version + ".mod": mod, v.Version + ".info": info, "list": []byte(v.Version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// contents returns the module's files: what git has below its directory, but for modules
// within it. One without a license gets the root's, as from the go command.
func contents(r *repo.Repo, m repo.Module) ([]zip.File, error) {
	out, err := git(r.Root, "ls-files", "-z", "--", m.Dir)
	if err != nil {
		return nil, err
	}
	within := func(name string) bool {
		return slices.ContainsFunc(r.Modules, func(o repo.Module) bool {
			return o.Dir != "." && o.Dir != m.Dir && strings.HasPrefix(name, o.Dir+"/") && (m.Dir == "." || strings.HasPrefix(o.Dir, m.Dir+"/"))
		})
	}
	var files []zip.File
	licensed := false
	for name := range strings.SplitSeq(strings.TrimRight(out, "\x00"), "\x00") {
		if within(name) {
			continue
		}
		as := name
		if m.Dir != "." {
			as = strings.TrimPrefix(name, m.Dir+"/")
		}
		licensed = licensed || as == "LICENSE"
		files = append(files, file{as: as, name: filepath.Join(r.Root, filepath.FromSlash(name))})
	}
	if !licensed {
		files = append(files, file{as: "LICENSE", name: filepath.Join(r.Root, "LICENSE")})
	}
	return files, nil
}

// file is a file of a module's zip.
type file struct{ as, name string }

func (f file) Path() string                 { return f.as }
func (f file) Lstat() (os.FileInfo, error)  { return os.Lstat(f.name) }
func (f file) Open() (io.ReadCloser, error) { return os.Open(f.name) }
