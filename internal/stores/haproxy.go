package stores

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// HAProxy starts a haproxy that config makes of the port at which it is to listen on
// 127.0.0.1.
func HAProxy(t testing.TB, config func(port int) string) *Process {
	t.Helper()
	Nightly(t, "it starts HAProxy")
	path := haproxy(t)
	dir := t.TempDir()
	return Start(t, Program{Name: "haproxy", Dir: dir, Command: func(port int) []string {
		file := filepath.Join(dir, "haproxy.cfg")
		if err := os.WriteFile(file, []byte(config(port)), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{path, "-db", "-f", file}
	}})
}

// haproxy finds the server, which Debian keeps where only root's PATH leads.
func haproxy(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, "haproxy is neither in PATH nor in /usr/sbin: apt-get install haproxy")
	return ""
}
