package main

import (
	"bytes"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestShow(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	begin := time.Now()
	var out bytes.Buffer
	if err := show(t.Context(), &out); err != nil {
		t.Errorf("it failed: %v", err)
	}
	for _, row := range []string{
		`(?m)^first election +\w+ +(\d+) *$`,
		`(?m)^hand-over +\w+ -> \w+ +\d+ +0\.\d{3} s$`,
		`(?m)^cut off from the store +\w+ -> \w+ +\d+ +\d\.\d{3} s$`,
		`(?m)^crash +\w+ -> \w+ +\d+ +\d\.\d{3} s$`,
		`(?m)^\d{3,} calls answered, \d+ refused after all retries, 0 failed otherwise$`,
		`(?m)^0 calls were answered by a server whose view had ended$`,
	} {
		if !regexp.MustCompile(row).Match(out.Bytes()) {
			t.Errorf("it does not print %q", row)
		}
	}
	if first := regexp.MustCompile(`(?m)^first election +\w+ +(\d+) *$`).FindSubmatch(out.Bytes()); first != nil {
		if n, err := strconv.ParseInt(string(first[1]), 10, 64); err != nil || n < begin.Unix() || n > time.Now().Unix() {
			t.Errorf("the first election's number is %s, %v: not the time's", first[1], err)
		}
	}
	if t.Failed() {
		t.Logf("it printed:\n%s", out.String())
	}
}

// The show fails where an answer came from an earlier leadership than one that had
// answered already, and where a call failed.
func TestVerdict(t *testing.T) {
	verdict := func(take func(c *calls)) error {
		var out bytes.Buffer
		s := &stage{out: &out, calls: newCalls(), table: tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)}
		s.calls.take(0, answer{leadership: 2, by: "bob", at: time.Now()}, nil)
		take(s.calls)
		return s.verdict()
	}
	if err := verdict(func(c *calls) { c.take(0, answer{leadership: 1, by: "ada"}, nil) }); err != nil {
		t.Errorf("an answer that was under way: %v", err)
	}
	err := verdict(func(c *calls) { c.take(c.before(), answer{leadership: 1, by: "ada"}, nil) })
	if err == nil || !strings.Contains(err.Error(), "ada with token 1 answered a call made after an answer with token 2") {
		t.Errorf("a stale answer: %v", err)
	}
	odd := errors.New("odd")
	if err := verdict(func(c *calls) { c.take(0, answer{}, odd) }); !errors.Is(err, odd) {
		t.Errorf("a call that failed: %v", err)
	}
}
