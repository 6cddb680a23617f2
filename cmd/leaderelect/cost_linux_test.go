//go:build !race

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// build builds the program, and returns where it is.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "leaderelect")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// A short command pays for no garbage collection, and little for the initialisation of this
// module's packages. What those of the stores' clients cost is not ours.
//
//	GODEBUG=inittrace=1,gctrace=1 leaderelect --version
func TestStart(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	c := exec.Command(build(t), "--version")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1,gctrace=1")
	var out strings.Builder
	c.Stderr = &out
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	own, packages, before := 0, 0, 0
	for line := range strings.Lines(out.String()) {
		// init PACKAGE @0.1 ms, 0.1 ms clock, 100 bytes, 1 allocs
		f := strings.Fields(line)
		switch {
		case f[0] == "gc":
			t.Errorf("it collects garbage: %s", line)
		case f[0] != "init":
			continue
		case strings.HasSuffix(f[1], "/cmd/leaderelect/internal/proc"):
			if before > 150 {
				t.Errorf("%d packages are initialised before a guard begins, want at most 150: see start_unix.go of package proc", before)
			}
			packages++
		case strings.HasPrefix(f[1], "github.com/c8e606e4/leaderelection/"):
			n, err := strconv.Atoi(f[7])
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			own, packages = own+n, packages+1
		}
		before++
	}
	t.Logf("%d packages of this module take %d bytes", packages, own)
	if packages == 0 || own > 100_000 {
		t.Errorf("%d packages of this module take %d bytes to be initialised, want at most 100000", packages, own)
	}
}

// A leader whose command runs, and its guard, wake up for nothing until the lease is to be
// extended, but once in a minute.
//
//	go test -run Sleeps ./cmd/leaderelect
func TestLeaderSleeps(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	dir := t.TempDir()
	up := filepath.Join(dir, "up")
	program := build(t) // the test binary has servers in it, which wake up
	c := launch(t, func(c *exec.Cmd) { c.Path = program }, "run", "--term", "10m", "file://"+filepath.Join(dir, "election.json"), "--", "sh", "-c", `echo up >"$0"; exec sleep 600`, up)
	has(t, up, "up")
	guards := children(c.Process.Pid)
	if len(guards) != 1 {
		t.Fatalf("the guards are %v", guards)
	}
	proctest.Sleeps(t, "the leader", c.Process.Pid, 2)
	proctest.Sleeps(t, "its guard", guards[0], 2)
}
