package main

import (
	"bytes"
	"os"
	"regexp"
	"testing"
)

var scenario = regexp.MustCompile(`^first   leads with token \d{10}, has asked its view, and is told that it may write
first   stands still at that very moment; its term is 2s
second  leads with token \d{10}, [0-9.]+ s later, and writes
          the fenced table:   accepted
          the unfenced table: accepted
first   goes on, and writes what it was about to write
          the fenced table:   REFUSED: fence: stale token orders:\d{10}: \d{10} has been seen. If this process leads, the election's record was set back: run leaderelect reset --after \d{10}
          the unfenced table: accepted
first   wants to write once more, and asks its view right before
          REFUSED: fence: not sent: leaderelection: this process does not lead \(token \d{10} of "orders"\)
the fenced table holds what second wrote, the unfenced one what first wrote
$`)

func TestShow(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var out bytes.Buffer
	if err := show(t.Context(), &out); err != nil || !scenario.Match(out.Bytes()) {
		t.Errorf("%v, and:\n%s", err, &out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// The late write that gets through is seen, and so is one that never came.
func TestProof(t *testing.T) {
	for _, c := range []struct {
		fenced, unfenced string
		want             bool
	}{{"second", "first", true}, {"first", "first", false}, {"second", "second", false}, {"nobody", "first", false}} {
		if err := proof(c.fenced, c.unfenced); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
