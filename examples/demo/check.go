package main

import (
	"fmt"
	"slices"
	"time"
)

// reign is what the ledger says of one reign.
type reign struct {
	id    string
	token uint64
	acts  int
	begin time.Time // its first line
	last  time.Time // its last line
	until time.Time // the end of its view: its last line's, or an orderly end
}

// check returns the reigns of a ledger, by token, and what is in it that must not
// be: tokens that go back, a token of two leaders, acts outside a view, and views
// that overlap.
func check(lines []entry) (reigns []reign, faults []string) {
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
			k = len(reigns)
			index[e.Token] = k
			reigns = append(reigns, reign{id: e.ID, token: e.Token, begin: e.At})
		}
		r := &reigns[k]
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
	slices.SortStableFunc(reigns, func(a, b reign) int { return a.begin.Compare(b.begin) })
	for i := range reigns {
		for _, later := range reigns[i+1:] {
			if r := reigns[i]; later.begin.Before(r.until) {
				fault("reigns overlap: %s began with token %d, %v before the view of %s with token %d ended",
					later.id, later.token, r.until.Sub(later.begin), r.id, r.token)
			}
		}
	}
	return reigns, faults
}
