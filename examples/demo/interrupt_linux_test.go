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
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	all, temp, err := interrupted(t, "FREEZE", os.Interrupt)
	var exit *exec.ExitError
	if errors.As(err, &exit); exit.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	allGone(t, all)
	leftNothing(t, temp)
}

// Killed so that it can clean up nothing, it leaves no process all the same, not
// even the frozen one.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	all, _, _ := interrupted(t, "FREEZE", syscall.SIGKILL)
	allGone(t, all)
}

// allGone waits until none of the candidates runs.
func allGone(t *testing.T, all []candidateProcess) {
	t.Helper()
	if len(all) != len(names) {
		t.Errorf("%d candidates were started: %v", len(all), all)
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for begin := time.Now(); ; <-again.C {
		var left []candidateProcess
		for _, p := range all {
			if p.runs() {
				left = append(left, p)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > 10*time.Second {
			for _, p := range left {
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
			t.Fatalf("candidates still run: %v", left)
		}
	}
}

// candidateProcess is a process that the demo has started. Its id may soon be another's, but not with
// the same beginning.
type candidateProcess struct {
	pid   int
	began string
}

// status is a process's state, "Z" if it only waits to be awaited, and when it began.
func status(pid int) (state, began string) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", ""
	}
	return fields[0], fields[19]
}

// runs reports whether the process runs.
func (p candidateProcess) runs() bool {
	state, began := status(p.pid)
	return state != "" && state != "Z" && began == p.began
}

// interrupted runs the demo until it prints what, ends it with sig, and returns
// its candidates' process ids and what its end was.
func interrupted(t *testing.T, what string, sig os.Signal) (all []candidateProcess, temp string, err error) {
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
			_, began := status(pid)
			all = append(all, candidateProcess{pid, began})
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
	return all, temp, err
}
