//go:build unix

package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// This program is its own members, also when it is a test.
func TestMain(m *testing.M) {
	if name := os.Getenv(envName); name != "" {
		os.Exit(serve(name))
	}
	goleak.VerifyTestMain(m)
}

// The whole show, with real processes.
func TestShow(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out bytes.Buffer
	if err := show(t.Context(), &out); err != nil {
		t.Errorf("it failed: %v", err)
	}
	for _, row := range []string{
		`(?m)^first election +\w+ +\d+ +\d+\.\d{3} s +0$`,
		`(?m)^kill -9 +\w+ -> \w+ +\d+ +\d+\.\d{3} s +\d$`,
		`(?m)^hand-over +\w+ -> \w+ +\d+ +\d+\.\d{3} s +0$`,
		`(?m)^hand-over +\w+ -> \w+ +\d+ +\d+\.\d{3} s +0$`,
		`(?m)^GET +(\d+) +\d+ +0 +sent again`,
		`(?m)^POST +(\d+) +\d+ +\d +sent once`,
		`(?m)^0 requests were answered by a process whose view had ended$`,
	} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("it does not print %q", row)
		}
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if t.Failed() {
		t.Logf("it printed:\n%s", out.String())
	}
}

// The show fails where an answer came from an earlier leadership than one that had
// answered already.
func TestStaleAnswer(t *testing.T) {
	var out bytes.Buffer
	s := &stage{out: &out, load: newLoad()}
	first, second := s.load.before(), s.load.before()
	s.load.take("GET", first, firstAnswer{leadership: 2, by: "two", at: time.Now()})
	s.load.take("GET", second, firstAnswer{leadership: 1, by: "one", at: time.Now()}) // sent before: it may be under way
	if err := s.verdict(); err != nil {
		t.Errorf("an answer that was under way: %v", err)
	}
	late := s.load.before()
	s.load.take("GET", late, firstAnswer{leadership: 1, by: "one", at: time.Now()})
	if err := s.verdict(); err == nil || !strings.Contains(err.Error(), "one with token 1 answered a GET sent after an answer with token 2") {
		t.Errorf("a stale answer: %v", err)
	}
	if got := s.load.counts["GET"]; got != (count{answered: 3}) {
		t.Errorf("%+v", got)
	}
}
