package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Ctrl-C in the middle, here while a leader is frozen: nothing is left.
func TestInterrupt(t *testing.T) {
	pids, temp, err := interrupted(t, "FREEZE", os.Interrupt)
	var exit *exec.ExitError
	if errors.As(err, &exit); exit.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	allGone(t, pids)
	leftNothing(t, temp)
}

// Killed so that it can clean up nothing, it leaves no process all the same, not
// even the frozen one.
func TestKilled(t *testing.T) {
	pids, _, _ := interrupted(t, "FREEZE", syscall.SIGKILL)
	allGone(t, pids)
}

// allGone waits until none of the candidates runs.
func allGone(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) != len(names) {
		t.Errorf("%d candidates were started: %v", len(pids), pids)
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for begin := time.Now(); ; <-again.C {
		var left []int
		for _, pid := range pids {
			if runs(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > 10*time.Second {
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			t.Fatalf("candidates still run: %v", left)
		}
	}
}

// runs reports whether a process runs: not where it only waits to be awaited.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}

// interrupted runs the demo until it prints what, ends it with sig, and returns
// its candidates' process ids and what its end was.
func interrupted(t *testing.T, what string, sig os.Signal) (pids []int, temp string, err error) {
	t.Helper()
	cmd, out, temp := start(t)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("%q was not printed: %v", what, err)
		}
		if m := regexp.MustCompile(`\(pid (\d+)\)`).FindStringSubmatch(line); m != nil {
			var pid int
			if _, err := fmt.Sscan(m[1], &pid); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if strings.Contains(line, what) {
			break
		}
	}
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("it ended with %v", err)
	}
	return pids, temp, err
}
