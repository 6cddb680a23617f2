//go:build packages && linux

package packages_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/stores"
)

// artifact is one of what goreleaser says that it has made.
type artifact struct {
	Name, Path, Type, Goos, Goarch string
}

// made returns what make packages has made, with absolute paths, and its version.
func made(t *testing.T) (all []artifact, version string) {
	t.Helper()
	root := stores.Root(t)
	var meta struct{ Version string }
	decode(t, filepath.Join(root, "bin/dist/artifacts.json"), &all)
	decode(t, filepath.Join(root, "bin/dist/metadata.json"), &meta)
	for i := range all {
		all[i].Path = filepath.Join(root, all[i].Path)
	}
	return all, meta.Version
}

// one returns the path of the artifact for linux/amd64 whose name ends so.
func one(t *testing.T, end string) string {
	t.Helper()
	all, _ := made(t)
	i := slices.IndexFunc(all, func(a artifact) bool {
		return strings.HasSuffix(a.Name, end) && (a.Goarch == "amd64" && a.Goos == "linux" || a.Goos == "")
	})
	if i < 0 {
		t.Fatalf("there is no artifact *%s: run make packages", end)
	}
	return all[i].Path
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	if err := json.Unmarshal(read(t, file), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// command is one that ends with the test, or with the test's process.
func command(t *testing.T, words ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, stores.Need(t, words[0]), words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output runs a command that must succeed, and returns what it prints.
func output(t *testing.T, words ...string) string {
	t.Helper()
	out, err := command(t, words...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		stores.Missing(t, "root, to change roots: sudo make packages")
	}
}

// pages are the manual pages that must be there, among others.
var pages = []string{"leaderelect", "leaderelect-run", "leaderelect-sidecar", "leaderelect-hold"}

// The archive has the program, which knows its version, and what goes with it.
func TestArchive(t *testing.T) {
	_, version := made(t)
	f, err := os.Open(one(t, "_linux_amd64.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "leaderelect")
	var names []string
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Uname != "root" || h.Mode != 0o644 && h.Name != "leaderelect" {
			t.Errorf("%s is %s's, mode %o", h.Name, h.Uname, h.Mode)
		}
		if h.Name == "leaderelect" {
			content, err := io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(program, content, h.FileInfo().Mode())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"LICENSE", "README.md", "third-party-notices.txt.gz", "systemd/leaderelect@.service", "systemd/leaderelect-undertake@.service", "completions/leaderelect.bash", "completions/leaderelect.fish", "completions/_leaderelect"}
	for _, page := range pages {
		want = append(want, "man/man1/"+page+".1.gz")
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in the archive:\n%q", name, names)
		}
	}
	isVersion(t, output(t, program, "--version"), version)
}

func isVersion(t *testing.T, said, version string) {
	t.Helper()
	if !strings.HasPrefix(said, "leaderelect v"+version+" (commit ") || !regexp.MustCompile(`-snapshot\.[0-9a-f]{7,} \(commit [0-9a-f]{12}, go`).MatchString(said) {
		t.Errorf("leaderelect --version prints %q; want v%s, with the commit", said, version)
	}
}

// The checksums are those of the files, and all files that a release has are listed.
func TestChecksums(t *testing.T) {
	all, _ := made(t)
	sums := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(read(t, one(t, "SHA256SUMS")))); s.Scan(); {
		sum, name, _ := strings.Cut(s.Text(), "  ")
		sums[name] = sum
	}
	for _, end := range []string{".tar.gz", ".deb", ".rpm", ".cdx.json"} {
		if !slices.ContainsFunc(all, func(a artifact) bool { return strings.HasSuffix(a.Name, end) }) {
			t.Errorf("nothing ends in %s", end)
		}
	}
	for _, a := range all {
		if a.Type == "Binary" || a.Type == "Checksum" || a.Type == "Metadata" {
			continue
		}
		sum := sha256.Sum256(read(t, a.Path))
		if sums[a.Name] != hex.EncodeToString(sum[:]) {
			t.Errorf("%s: SHA256SUMS has %q", a.Name, sums[a.Name])
		}
	}
}
