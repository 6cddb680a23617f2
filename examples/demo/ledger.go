package main

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

// check goes through the ledger as it was written, and returns how many leaderships are in it, and what must not be.
func check(lines []entry) (leaderships int, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	var last entry // of the latest leadership
	for i, e := range lines {
		switch {
		case e.Token < last.Token:
			fault("line %d: %s acts with token %d after the first act of %s with token %d", i+1, e.ID, e.Token, last.ID, last.Token)
			continue
		case e.Token == last.Token && e.ID != last.ID:
			fault("line %d: token %d is used by %s and by %s", i+1, e.Token, last.ID, e.ID)
		case e.Token > last.Token:
			leaderships++
			if e.At.Before(last.Until) {
				fault("line %d: %s begins with token %d, %v before the view of %s with token %d ends", i+1, e.ID, e.Token, last.Until.Sub(e.At), last.ID, last.Token)
			}
		}
		if !e.At.Before(e.Until) {
			fault("line %d: %s acts with token %d, %v after the end of its view", i+1, e.ID, e.Token, e.At.Sub(e.Until))
		}
		if last = e; e.Kind == "end" {
			last.Until = e.At // it has given the rest of its view up
		}
	}
	return leaderships, faults
}

// entry is a line of the ledger.
type entry struct {
	At    time.Time
	ID    string
	Token uint64 // the leadership's election number
	// Kind is what happened: a leadership's "begin", an "act", an orderly "end". An
	// act that was "fenced" off is told to the demo, and not in the ledger.
	Kind  string
	Beat  int
	Until time.Time // where the view ended, at that time
}

// String is the entry as a line: time, id, token, kind, beat, end of the view.
func (e entry) String() string {
	return fmt.Sprintf("%s %s %d %s %d %s", e.At.UTC().Format(time.RFC3339Nano), e.ID, e.Token, e.Kind, e.Beat, e.Until.UTC().Format(time.RFC3339Nano))
}

// parseEntry reads a line.
func parseEntry(line string) (entry, error) {
	var e entry
	var at, until, more string
	n, _ := fmt.Sscan(line, &at, &e.ID, &e.Token, &e.Kind, &e.Beat, &until, &more)
	if n != 6 {
		return e, fmt.Errorf("%q: want six fields", line)
	}
	var err error
	if e.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return e, fmt.Errorf("%q: %w", line, err)
	}
	if e.Until, err = time.Parse(time.RFC3339Nano, until); err != nil {
		return e, fmt.Errorf("%q: %w", line, err)
	}
	switch e.Kind {
	case "begin", "act", "end", "fenced":
		return e, nil
	}
	return e, fmt.Errorf("%q: unknown kind %q", line, e.Kind)
}

// readLedger reads all lines.
func readLedger(r io.Reader) ([]entry, error) {
	var all []entry
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return all, lines.Err()
		}
		e, err := parseEntry(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("ledger, line %d: %w", len(all)+1, err)
		}
		all = append(all, e)
	}
}
