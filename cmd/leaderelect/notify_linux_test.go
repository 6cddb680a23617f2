package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// systemd is a socket that is told how a service is.
type systemd struct {
	path string

	mu   sync.Mutex
	told []string
}

func newSystemd(t *testing.T) *systemd {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &systemd{path: filepath.Join(dir, "socket")}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.told = append(s.told, string(b[:n]))
			s.mu.Unlock()
		}
	}()
	return s
}

// all is what was told.
func (s *systemd) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told, "\n") + "\n"
}

// has waits until count lines of what was told match.
func (s *systemd) has(t *testing.T, pattern string, count int) {
	t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	if !eventually(func() bool { return len(re.FindAllString(s.all(), -1)) >= count }) {
		t.Fatalf("told %d times less than %d within %v: %s; told was\n%s", len(re.FindAllString(s.all(), -1)), count, patience, pattern, s.all())
	}
}

// systemd is told READY, STATUS, WATCHDOG and STOPPING, and the command has none of its
// variables.
func TestNotify(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	s := newSystemd(t)
	url := "file://" + filepath.Join(t.TempDir(), "election.json")
	env := func(c *exec.Cmd) { c.Env = append(c.Env, "NOTIFY_SOCKET="+s.path, "WATCHDOG_USEC=200000") }
	const note = `env >"$0"; exec sleep 600`
	a := launch(t, env, "run", "--id", "a", url, "--", "sh", "-c", note)
	has(t, a.ledger, `^LEADERELECT_TOKEN=\d{10}$`)
	s.has(t, `^READY=1$`, 1)
	s.has(t, `^STATUS=leading, token \d{10}$`, 1)
	s.has(t, `^WATCHDOG=1$`, 3)
	if text, err := os.ReadFile(a.ledger); err != nil || strings.Contains(string(text), "NOTIFY_SOCKET=") || strings.Contains(string(text), "WATCHDOG_") {
		t.Errorf("%v; the command has\n%s", err, text)
	}

	other := newSystemd(t)
	b := launch(t, func(c *exec.Cmd) { c.Env = append(c.Env, "NOTIFY_SOCKET="+other.path) }, "run", "--ready-when", "leading", "--id", "b", url, "--", "sh", "-c", note)
	other.has(t, `^STATUS=standing by; a leads, token \d{10}$`, 1)
	if all := other.all(); strings.Contains(all, "READY") || strings.Contains(all, "WATCHDOG") {
		t.Errorf("a standby has told\n%s", all)
	}
	_ = a.Process.Signal(syscall.SIGTERM)
	s.has(t, `^STOPPING=1$`, 1)
	other.has(t, `^READY=1$`, 1)
	_ = b.Process.Signal(syscall.SIGTERM)
	other.has(t, `^STOPPING=1$`, 1)
}

// With --pass-notify they are the command's.
func TestPassNotify(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	s := newSystemd(t)
	c := launch(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, "NOTIFY_SOCKET="+s.path, "WATCHDOG_USEC=200000", "WATCHDOG_PID=1")
	}, "run", "--pass-notify", "file://"+filepath.Join(t.TempDir(), "election.json"), "--", "sh", "-c", `env >"$0"; exec sleep 600`)
	has(t, c.ledger, `^LEADERELECT_TOKEN=\d{10}$`)
	text := has(t, c.ledger, "^WATCHDOG_USEC=200000$")
	if !strings.Contains(text, "NOTIFY_SOCKET="+s.path) || strings.Contains(text, "WATCHDOG_PID") {
		t.Errorf("the command has\n%s", text)
	}
	_ = c.Process.Signal(syscall.SIGTERM)
	<-c.ended
	if all := strings.TrimSpace(s.all()); all != "" {
		t.Errorf("told was\n%s", all)
	}
}
