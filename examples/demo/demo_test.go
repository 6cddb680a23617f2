package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	before := time.Now()
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
	// The first token is the time's, and each of the others the next one.
	token := func(int) string { return "no token" }
	if first := regexp.MustCompile(`first election +\w+ +(\d+) `).FindSubmatch(said); first != nil {
		n, err := strconv.Atoi(string(first[1]))
		if err != nil || n < int(before.Unix()) || n > int(time.Now().Unix()) {
			t.Errorf("the first token is %d, %v: not the time's", n, err)
		}
		token = func(i int) string { return strconv.Itoa(n + i) }
	}
	rows := []string{
		`first election +\w+ +` + token(0) + ` +\d+\.\d+ s`,
		`kill -9 +(\w+) -> \w+ +` + token(0) + ` -> ` + token(1) + ` +\d+\.\d+ s`,
		`freeze \(SIGSTOP\) +(\w+) -> \w+ +` + token(1) + ` -> ` + token(2) + ` +\d+\.\d+ s`,
		`hand-over \(Transfer\) +\w+ -> \w+ +` + token(2) + ` -> ` + token(3) + ` +\d+\.\d+ s`,
		`\d\d+ acts in 4 leaderships, 1 late act fenced off`,
		`0 overlapping leaderships`,
	}
	if !canFreeze {
		rows[2], rows[3], rows[4] = "", `hand-over \(Transfer\) +\w+ -> \w+ +`+token(1)+` -> `+token(2)+` +\d+\.\d+ s`, `acts in 3 leaderships, 0 late`
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
