//go:build !race

package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/proctest"
)

// A leader whose command runs, and its guard, wake up for nothing until the lease is to be
// extended, but once in a minute.
//
//	go test -run Sleeps ./cmd/leaderelect
func TestLeaderSleeps(t *testing.T) {
	dir := t.TempDir()
	up := filepath.Join(dir, "up")
	program := filepath.Join(dir, "leaderelect") // the test binary has servers in it, which wake up
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c := launch(t, func(c *exec.Cmd) { c.Path = program }, "run", "--term", "10m", "file://"+filepath.Join(dir, "election.json"), "--", "sh", "-c", `echo up >"$0"; exec sleep 600`, up)
	has(t, up, "up")
	guards := children(c.Process.Pid)
	if len(guards) != 1 {
		t.Fatalf("the guards are %v", guards)
	}
	proctest.Sleeps(t, "the leader", c.Process.Pid, 2)
	proctest.Sleeps(t, "its guard", guards[0], 2)
}
