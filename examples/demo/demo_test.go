package main

import (
	"bufio"
	"bytes"
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

// good is a ledger as it should be: a leadership that ended with its view (its leader
// was killed), one that was given up early, and one that follows at once.
const good = `
2026-11-21T12:00:00.0Z ada 1 begin 0 2026-11-21T12:00:02.8Z
2026-11-21T12:00:00.2Z ada 1 act 1 2026-11-21T12:00:02.8Z
2026-11-21T12:00:01.6Z ada 1 act 2 2026-11-21T12:00:04.2Z
2026-11-21T12:00:04.6Z bob 2 begin 0 2026-11-21T12:00:07.4Z
2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z
2026-11-21T12:00:05.0Z bob 2 end 2 2026-11-21T12:00:07.4Z
2026-11-21T12:00:05.1Z cyd 3 begin 0 2026-11-21T12:00:07.9Z
2026-11-21T12:00:05.3Z cyd 3 act 1 2026-11-21T12:00:07.9Z
`

func lines(t *testing.T, text string) []entry {
	t.Helper()
	all, err := readLedger(strings.NewReader(strings.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCheckPassesWhatIsRight(t *testing.T) {
	leaderships, faults := check(lines(t, good))
	if len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	if leaderships != 3 {
		t.Errorf("%d leaderships", leaderships)
	}
}

// Each forgery is found, and named.
func TestCheckFindsForgeries(t *testing.T) {
	for name, c := range map[string]struct{ old, forged, say string }{
		"overlap": {
			"04.6Z bob 2 begin 0", "04.1Z bob 2 begin 0",
			"line 4: bob begins with token 2, 100ms before the view of ada with token 1 ends",
		},
		"an act after the next leader's first": {
			"2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z",
			"2026-11-21T12:00:04.8Z bob 2 act 1 2026-11-21T12:00:07.4Z\n2026-11-21T12:00:04.9Z ada 1 act 3 2026-11-21T12:00:05.9Z",
			"line 6: ada acts with token 1 after the first act of bob with token 2",
		},
		"an act after the view": {
			"01.6Z ada 1 act 2 2026-11-21T12:00:04.2Z", "04.3Z ada 1 act 2 2026-11-21T12:00:04.2Z",
			"line 3: ada acts with token 1, 100ms after the end of its view",
		},
		"a token of two":    {"05.1Z cyd 3", "05.1Z bob 3", "token 3 is used by bob and by cyd"},
		"no end":            {" end ", " act ", "line 7: cyd begins with token 3, 2.3s before the view of bob with token 2 ends"},
		"a token goes back": {"05.3Z cyd 3", "05.3Z cyd 2", "line 8: cyd acts with token 2 after the first act of cyd with token 3"},
	} {
		t.Run(name, func(t *testing.T) {
			forged := strings.Replace(good, c.old, c.forged, 1)
			if forged == good {
				t.Fatal("nothing was forged")
			}
			_, faults := check(lines(t, forged))
			if !strings.Contains(strings.Join(faults, "\n"), c.say) {
				t.Errorf("faults: %q\nwant %q", faults, c.say)
			}
		})
	}
}

// The demo itself fails on a forged ledger, and says so in its report.
func TestVerdictOnAForgedLedger(t *testing.T) {
	for _, c := range []struct {
		text string
		bad  bool
	}{{good, false}, {strings.Replace(good, "04.6Z bob", "04.1Z bob", 1), true}} {
		path := filepath.Join(t.TempDir(), ledger)
		if err := os.WriteFile(path, []byte(strings.TrimSpace(c.text)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &stage{ledger: path, events: make([]event, 3)}
		var out bytes.Buffer
		err := s.verdict(&out, time.Second)
		if (err != nil) != c.bad {
			t.Errorf("verdict = %v", err)
		}
		if fault, clean := strings.Contains(out.String(), "FAULT: line 4: bob begins"), strings.Contains(out.String(), "0 overlapping leaderships"); fault != c.bad || clean == c.bad {
			t.Errorf("it prints\n%s", &out)
		}
	}
}

func TestEntryIsReadBack(t *testing.T) {
	e := entry{At: time.Now().UTC(), ID: "ada", Token: 7, Kind: "act", Beat: 3, Until: time.Now().Add(time.Second).UTC()}
	e.At, e.Until = e.At.Round(0), e.Until.Round(0)
	if got, err := parseEntry(e.String()); err != nil || got != e {
		t.Errorf("%v, %v; want %v", got, err, e)
	}
	for _, bad := range []string{"", "x", e.String() + " more", strings.Replace(e.String(), " act ", " sleep ", 1), strings.Replace(e.String(), " 7 ", " x ", 1)} {
		if got, err := parseEntry(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}
