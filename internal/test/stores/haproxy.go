package stores

import (
	"os"
	"path/filepath"
	"testing"
)

// HAProxy starts a haproxy that config makes of the port at which it is to listen on
// 127.0.0.1.
func HAProxy(t testing.TB, config func(port int) string) *Process {
	t.Helper()
	Nightly(t, "it starts HAProxy")
	path := Need(t, "haproxy")
	dir := t.TempDir()
	return Start(t, Program{Name: "haproxy", Dir: dir, Command: func(port int) []string {
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(config(port)), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{path, "-db", "-f", file}
	}})
}
