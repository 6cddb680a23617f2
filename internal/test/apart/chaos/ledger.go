//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// line is what a candidate writes down of one act. Times are nanoseconds of the kernel's
// monotonic clock, which all processes share and nobody sets.
type line struct {
	Kind kind   `json:"k"`
	By   string `json:"p"` // the process: the candidate's name, and which of its lives
	N    uint64 `json:"n"` // the leadership's number
	B    int64  `json:"b"` // before and
	A    int64  `json:"a"` // after the view was asked: it was in the future
	R    int64  `json:"r,omitempty"`
	Key  string `json:"key,omitempty"`
	V    string `json:"v,omitempty"`
	G    string `json:"g,omitempty"` // in a leadership's first: how often a newer version has written the record
	O    string `json:"o,omitempty"` // what became of a write: ok, refused, unknown
}

type kind string

const (
	read  kind = "read"  // answered a client's read from memory
	write kind = "write" // wrote a register, with the token
	act   kind = "act"   // nothing but that the view was asked
)

func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}

// ledger is a file that lines are added to, each with one write: what was written before
// a process was killed is there.
type ledger struct{ f *os.File }

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &ledger{f}, err
}

func (l *ledger) add(e line) {
	text, err := json.Marshal(e)
	if err == nil {
		_, err = l.f.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: the ledger:", err)
		os.Exit(1)
	}
}

// readLedger returns the lines of a ledger. A process that is killed may leave the last of its lines
// incomplete, and the next one goes on behind it.
func readLedger(path string) (all []line, err error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for in := bufio.NewReader(f); ; {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e line
		if whole := bytes.LastIndex(text, []byte(`{"k":`)); whole < 0 || json.Unmarshal(text[whole:], &e) != nil {
			return nil, fmt.Errorf("%s: a line that no candidate writes: %q", path, text)
		}
		all = append(all, e)
	}
}

func span(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }
