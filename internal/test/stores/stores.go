// Package stores starts the store servers that tests talk to, each on a free
// loopback port, waits until it answers, and stops it when the test is over. It
// is a helper for tests only.
//
// A store has one function, which takes the test and returns a ready client or
// endpoint. A server dies with its test, and also with the test process, however
// that ends (see Process).
//
// Where what a server needs is not on the machine (node, java, packages that
// npm has not installed), the test is skipped with the reason; with CI=true in
// the environment it fails instead, so that nothing is left out unseen.
package stores

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is the root module's path: its go.mod marks the root of the tree.
const module = "github.com/c8e606e4/leaderelection"

// Missing ends the test since something it needs is not there: skipped, with
// the reason, or failed where CI is true in the environment. Say in the reason
// how to get what is missing.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if ci := os.Getenv("CI"); ci != "" && ci != "0" && ci != "false" {
		t.Fatalf("missing, and CI must leave out nothing: %s", reason)
	}
	t.Skipf("missing: %s", reason)
}

// Nightly leaves the test to make nightly under go test -short: it waits for the wall clock, or
// needs what takes minutes to build. Say in the reason what that is.
func Nightly(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() {
		t.Skip("nightly: " + reason)
	}
}

// Need returns the path of the program called name, from PATH or /usr/sbin, or ends the test
// by Missing if there is none.
func Need(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
			return path
		}
		Missing(t, "the program "+name+" is neither in PATH nor in /usr/sbin ("+err.Error()+")")
	}
	return path
}

// NPM returns the directory of an installed npm package, or ends the test by
// Missing where it is not installed. The packages are those of npm/package.json
// beside this file.
func NPM(t testing.TB, name string) string {
	t.Helper()
	npm := filepath.Join(Root(t), "internal", "test", "stores", "npm")
	dir := filepath.Join(npm, "node_modules", filepath.FromSlash(name))
	if _, err := os.Stat(dir); err != nil {
		Missing(t, "the npm package "+name+" is not installed: run npm ci --ignore-scripts in internal/test/stores/npm")
	}
	return dir
}

// Root returns the directory of the root module, also for a test of a nested
// module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("stores: %v", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if first, _, _ := strings.Cut(string(mod), "\n"); err == nil && strings.TrimSpace(first) == "module "+module {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatalf("stores: no go.mod of %s above the working directory: run go test in the source tree", module)
		}
		dir = parent
	}
}

// write makes a file, which the user of a server may read.
func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatalf("stores: %v", err)
	}
}

// split is net.SplitHostPort.
func split(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("stores: %v", err)
	}
	return host, port
}

// talk says something to a server by a connection of its own, and returns what hear makes of the answer.
func talk(ctx context.Context, addr, say string, hear func(io.Reader) (string, error)) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(c, say); err != nil {
		return "", err
	}
	return hear(c)
}
