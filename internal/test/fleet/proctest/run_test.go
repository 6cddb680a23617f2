//go:build unix

package proctest

import (
	"bufio"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
)

// In these tests an address is a path, with "blind:" before it for a store that
// decides nothing.
func TestMain(m *testing.M) {
	Main(func(_ context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		if u.Scheme == "blind" {
			return Blind{file.NewDecider(u.Path, nil)}, nil
		}
		return file.NewDecider(u.Path, nil), nil
	})
	goleak.VerifyTestMain(m)
}

// A store that lets several win is found out by Run itself.
func TestRunFindsABlindStore(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: real processes")
	}
	const env = "PROCTEST_BLIND"
	if path := os.Getenv(env); path != "" {
		Run(t, Options{Address: "blind:" + path, patience: 3 * time.Second})
		return
	}
	out, err := fleet.Again(t, "^"+t.Name()+"$", env+"="+filepath.Join(t.TempDir(), "e.json")).CombinedOutput()
	// Which of the errors shows it first depends on which of the candidates looks when.
	if err == nil || !strings.Contains(string(out), "have one token") && !strings.Contains(string(out), "acted after the first act") {
		t.Errorf("a store that decides nothing: %v\n%s", err, out)
	}
}

// Candidates die with the process that started them, however it ends, and also
// where they are stopped.
func TestCandidatesDieWithTheirParent(t *testing.T) {
	const env = "PROCTEST_ORPHANS"
	if dir := os.Getenv(env); dir != "" {
		all := newCandidacies()
		for _, name := range []string{"running", "stopped"} {
			r := role{ID: name, Address: filepath.Join(dir, name)}
			p := all.start(t, name, r, nil, "", nil)
			all.Await(time.Minute, func(lines map[string][]line) bool { return has(lines[name], act) })
			if name == "stopped" {
				signal(t, p, syscall.SIGSTOP)
			}
			_ = json.NewEncoder(os.Stdout).Encode(p.PID())
		}
		select {} // until killed
	}
	parent := fleet.Again(t, "^"+t.Name()+"$", env+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for s := bufio.NewScanner(out); len(pids) < 2 && s.Scan(); {
		var pid int
		if json.Unmarshal(s.Bytes(), &pid) == nil {
			pids = append(pids, pid)
		}
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if len(pids) < 2 {
		t.Fatal("the candidates did not start")
	}
	timeout, poll := time.NewTimer(10*time.Second), time.NewTicker(5*time.Millisecond)
	defer timeout.Stop()
	defer poll.Stop()
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-poll.C:
			case <-timeout.C:
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("process %d outlives its parent", pid)
			}
		}
	}
}

// alive reports whether a process runs: one that nobody awaits does not.
func alive(pid int) bool {
	if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
		_, rest, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(rest, "Z")
	}
	return syscall.Kill(pid, 0) == nil
}
