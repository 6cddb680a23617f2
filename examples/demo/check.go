package main

import (
	"fmt"
	"slices"
	"time"
)

// leadership is what the ledger says of one leadership.
type leadership struct {
	id    string
	token uint64
	acts  int
	begin time.Time // its first line
	last  time.Time // its last line
	until time.Time // the end of its view: its last line's, or an orderly end
}

// check returns the leaderships of a ledger, by token, and what is in it that must not
// be: tokens that go back, a token of two leaders, acts outside a view, and views
// that overlap.
func check(lines []entry) (leaderships []leadership, faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	index := map[uint64]int{}
	var highest uint64
	for i, e := range lines {
		if e.Token < highest {
			fault("line %d: %s of %s with token %d after the first with token %d", i+1, e.Kind, e.ID, e.Token, highest)
		}
		highest = max(highest, e.Token)
		if !e.At.Before(e.Until) {
			fault("line %d: %s of %s with token %d, %v after the end of its view", i+1, e.Kind, e.ID, e.Token, e.At.Sub(e.Until))
		}
		k, known := index[e.Token]
		if !known {
			k = len(leaderships)
			index[e.Token] = k
			leaderships = append(leaderships, leadership{id: e.ID, token: e.Token, begin: e.At})
		}
		r := &leaderships[k]
		if r.id != e.ID {
			fault("line %d: token %d is used by %s and by %s", i+1, e.Token, r.id, e.ID)
		}
		if e.Kind == "act" {
			r.acts++
		}
		r.last, r.until = e.At, e.Until
		if e.Kind == "end" {
			r.until = e.At // it gave the rest of its view up
		}
	}
	slices.SortStableFunc(leaderships, func(a, b leadership) int { return a.begin.Compare(b.begin) })
	for i := range leaderships {
		for _, later := range leaderships[i+1:] {
			if r := leaderships[i]; later.begin.Before(r.until) {
				fault("leaderships overlap: %s began with token %d, %v before the view of %s with token %d ended",
					later.id, later.token, r.until.Sub(later.begin), r.id, r.token)
			}
		}
	}
	return leaderships, faults
}
