package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// start builds the demo and starts it, with a temporary directory of its own, as
// one would without a terminal.
func start(t *testing.T) (cmd *exec.Cmd, out *bufio.Reader, temp string) {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "demo.exe")
	if said, err := exec.CommandContext(t.Context(), "go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	temp = t.TempDir()
	cmd = exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp, "TMP="+temp)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(pipe), temp
}

// leftNothing fails the test where the demo has left files behind.
func leftNothing(t *testing.T, temp string) {
	t.Helper()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The whole demo, as it is run by a newcomer whose output is no terminal.
func TestDemo(t *testing.T) {
	cmd, out, temp := start(t)
	begin := time.Now()
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it failed: %v", err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	rows := []string{
		`first election +\w+ +1 +\d+\.\d+ s`,
		`kill -9 +(\w+) -> \w+ +1 -> 2 +\d+\.\d+ s`,
		`freeze \(SIGSTOP\) +(\w+) -> \w+ +2 -> 3 +\d+\.\d+ s`,
		`hand-over \(Transfer\) +\w+ -> \w+ +3 -> 4 +\d+\.\d+ s`,
		`\d\d+ acts in 4 leaderships, 1 late act fenced off`,
		`0 overlapping leaderships`,
	}
	if !canFreeze {
		rows[2], rows[3], rows[4] = "", `hand-over \(Transfer\) +\w+ -> \w+ +2 -> 3 +\d+\.\d+ s`, `acts in 3 leaderships, 0 late`
	}
	for _, row := range rows {
		if !regexp.MustCompile(row).Match(said) {
			t.Errorf("it does not print %q", row)
		}
	}
	if strings.Contains(string(said), "\x1b") {
		t.Error("it prints escape sequences, though this is no terminal")
	}
	leftNothing(t, temp)
	if t.Failed() {
		t.Logf("it printed:\n%s", said)
	}
}
