package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// launch builds the demo and starts it, with a temporary directory of its own.
func launch(t *testing.T) (cmd *exec.Cmd, out *bufio.Reader, temp string) {
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

// leftNothing fails the test if the demo has left files behind.
func leftNothing(t *testing.T, temp string) {
	t.Helper()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The whole demo, as a newcomer runs it.
func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	cmd, out, temp := launch(t)
	begin := time.Now()
	said, err := io.ReadAll(out)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	// The first token is the time's, and each of the others the next one.
	first := 0
	if m := regexp.MustCompile(`first election +\w+ +(\d+) `).FindSubmatch(said); m != nil {
		first, _ = strconv.Atoi(string(m[1])) // they are digits
	}
	if first < int(begin.Unix())-1 || first > int(time.Now().Unix()) {
		t.Errorf("the first token is %d: not the time's", first)
	}
	changes := []string{"kill -9", `freeze \(SIGSTOP\)`, `hand-over \(Transfer\)`}
	late := 1
	if freeze == nil {
		changes, late = []string{changes[0], changes[2]}, 0
	}
	rows := []string{fmt.Sprintf(`\d\d acts in %d leaderships, %d late act fenced off`, 1+len(changes), late), `0 overlapping leaderships`}
	for i, what := range changes {
		rows = append(rows, fmt.Sprintf(`%s +\w+ -> \w+ +%d -> %d +\d+\.\d+ s`, what, first+i, first+i+1))
	}
	for _, row := range rows {
		if !regexp.MustCompile(row).Match(said) {
			t.Errorf("it does not print %q", row)
		}
	}
	leftNothing(t, temp)
	if t.Failed() {
		t.Logf("it printed:\n%s", said)
	}
}

// Interrupted while a leader is frozen, the demo leaves nothing; killed so that it can clean
// up nothing, it leaves no process all the same.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	if runtime.GOOS != "linux" {
		t.Skip("it looks at processes in /proc")
	}
	for sig, code := range map[os.Signal]int{os.Interrupt: 130, syscall.SIGKILL: -1} {
		cmd, out, temp := launch(t)
		var pids []string
		for line := ""; !strings.Contains(line, "FREEZE"); {
			var err error
			if line, err = out.ReadString('\n'); err != nil {
				t.Fatalf("nobody was frozen: %v", err)
			}
			if m := regexp.MustCompile(`\(pid (\d+)\)`).FindStringSubmatch(line); m != nil {
				pids = append(pids, m[1])
			}
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, out)
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != code {
			t.Errorf("%v: it ended with %v", sig, cmd.ProcessState)
		}
		if len(pids) != len(names) {
			t.Errorf("%v: %d candidates were started: %v", sig, len(pids), pids)
		}
		for _, pid := range pids {
			for limit := time.Now().Add(10 * time.Second); runs(pid); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("%v: candidate %s still runs", sig, pid)
				}
			}
		}
		if sig == os.Interrupt {
			leftNothing(t, temp)
		}
	}
}

// runs reports whether a process does: one that only waits to be awaited does not.
func runs(pid string) bool {
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	_, state, _ := strings.Cut(string(stat), ") ")
	return state != "" && state[0] != 'Z'
}

// at is an entry of so many milliseconds after the start, in a view that lasts until then.
func at(ms int, name string, token uint64, kind string, until int) entry {
	when := func(ms int) time.Time { return time.UnixMilli(1_795_000_000_000 + int64(ms)) }
	return entry{At: when(ms), Name: name, Token: token, Kind: kind, Until: when(until)}
}

// A forged ledger is found out: each fault is named, and the demo fails. In a good one a leadership ends
// with its view, since its leader was killed, and one is given up, and followed at once.
func TestForgeriesAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		line int // that is forged; -1: none
		is   entry
		want string
	}{
		"good":                {-1, entry{}, ""},
		"overlap":             {3, at(4100, "bob", 2, begin, 6900), "bob with token 2, 100ms before the end of the view of ada with token 1"},
		"an act too late":     {5, at(4900, "ada", 1, act, 5900), "ada with token 1, after the first act of bob with token 2"},
		"after its view":      {2, at(4300, "ada", 1, act, 4200), "ada with token 1, 100ms after the end of its view"},
		"a token of two":      {7, at(5100, "bob", 3, begin, 7900), "cyd with token 3, which is bob's"},
		"no end":              {6, at(5000, "bob", 2, act, 7400), "cyd with token 3, 2.3s before the end of the view of bob with token 2"},
		"a token goes back":   {8, at(5300, "cyd", 2, act, 7900), "cyd with token 2, after the first act of cyd with token 3"},
		"fenced is no act":    {5, at(4900, "ada", 1, fenced, 4200), ""},
		"nothing to complain": {4, at(4700, "bob", 2, act, 7400), ""},
	} {
		s := &stage{cast: &cast{news: make(chan entry)}, ledger: []entry{
			at(0, "ada", 1, begin, 2800),
			at(200, "ada", 1, act, 2800),
			at(1600, "ada", 1, act, 4200),
			at(4600, "bob", 2, begin, 7400),
			at(4800, "bob", 2, act, 7400),
			at(4900, "bob", 2, act, 7400),
			at(5000, "bob", 2, end, 7400),
			at(5100, "cyd", 3, begin, 7900),
			at(5300, "cyd", 3, act, 7900),
		}}
		close(s.cast.news)
		if c.line >= 0 {
			s.ledger[c.line] = c.is
		}
		var out bytes.Buffer
		s.out = &out
		err := s.verdict()
		if (err != nil) != (c.want != "") || strings.Contains(out.String(), "0 overlapping") != (c.want == "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: %v; it prints\n%s", name, err, &out)
		}
	}
}
