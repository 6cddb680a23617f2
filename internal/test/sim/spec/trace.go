package spec

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Write is a write that somebody has made.
type Write struct {
	By    string    // for messages
	Began time.Time // true time
	Entry Entry
	Sure  bool // it has landed; else it may have
}

// Check returns what is wrong with the writes that several processes made of one record, from an empty
// one on, in any order; nil if the rules allow them. Of writes whose outcome is not known, any may
// have landed: there must be a choice of them with which all that landed are allowed.
func Check(start Record, writes []Write) error {
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b Write) int {
		return cmp.Or(a.Entry.Compare(&b.Entry), a.Began.Compare(b.Began))
	})
	budget := 100_000 // steps: tests give up only a few calls
	return check(start, writes, &budget)
}

func check(r Record, writes []Write, budget *int) error {
	for i, w := range writes {
		if *budget--; *budget < 0 {
			return fmt.Errorf("too many writes have an unknown outcome")
		}
		with := r
		err := with.Landed(w.Began, &w.Entry)
		if w.Sure {
			if err != nil {
				return fmt.Errorf("%s: %w", w.By, err)
			}
			r = with
			continue
		}
		if err == nil && check(with, writes[i+1:], budget) == nil {
			return nil
		}
	}
	return nil
}
