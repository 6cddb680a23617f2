//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// line is what a child has written.
type line struct {
	what  string
	token uint64
	pid   int
	at    time.Time
}

func readLedger(t testing.TB, path string) []line {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []line
	for s := range strings.Lines(string(text)) {
		if !strings.HasSuffix(s, "\n") {
			break // being written
		}
		f := strings.Fields(s)
		if len(f) != 4 {
			t.Fatalf("%s: a line that no child writes: %q", path, s)
		}
		token, err1 := strconv.ParseUint(f[1], 10, 64)
		pid, err2 := strconv.Atoi(f[2])
		at, err3 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("%s: a line that no child writes: %q", path, s)
		}
		all = append(all, line{f[0], token, pid, time.Unix(0, at)})
	}
	return all
}

// overlap says where two commands ran as leader at once: a line of an earlier
// leadership after the first of a later one. The file's order is that of the writes.
func overlap(all []line) error {
	var top line
	for i, l := range all {
		switch {
		case l.token > top.token:
			top = l
		case l.token < top.token:
			return fmt.Errorf("line %d: process %d wrote %q with token %d at %v, when process %d had written %q with token %d at %v",
				i+1, l.pid, l.what, l.token, l.at, top.pid, top.what, top.token, top.at)
		}
	}
	return nil
}

// A check that cannot fail is none.
func TestOverlapIsFound(t *testing.T) {
	good := []line{{"start", 1, 10, time.Time{}}, {"beat", 1, 10, time.Time{}}, {"start", 2, 11, time.Time{}}, {"beat", 2, 11, time.Time{}}}
	if err := overlap(good); err != nil {
		t.Error(err)
	}
	if overlap(append(good, line{"beat", 1, 10, time.Time{}})) == nil {
		t.Error("a beat with token 1 after the start of token 2 is not found")
	}
}
