package proctest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// leadership is what one process did under one number.
type leadership struct {
	process     string
	number      uint64
	first, last line // its first and its last act
	acts        int
	out         *line
	problems    []string
}

// leaderships sorts the lines of each process into leaderships, in the order in which they
// began.
func leaderships(logs map[string][]line) []*leadership {
	var all []*leadership
	for process, lines := range logs {
		mine := map[uint64]*leadership{}
		for _, l := range lines {
			r := mine[l.Number]
			switch {
			case l.Kind == act && r == nil:
				r = &leadership{process: process, number: l.Number, first: l, last: l, acts: 1}
				mine[l.Number] = r
				all = append(all, r)
			case l.Kind == act:
				if l.End < r.last.End {
					r.problems = append(r.problems, fmt.Sprintf("%s: its view's end went back by %v", r, time.Duration(r.last.End-l.End)))
				}
				if r.out != nil && r.out.Before < l.Before && r.out.Why != leaving {
					r.problems = append(r.problems, fmt.Sprintf("%s: it acted %v after its ctx had ended (%s)", r, time.Duration(l.Before-r.out.Before), r.out.Why))
				}
				r.last = l
				r.acts++
			case l.Kind == out && r != nil:
				r.out = &l
			}
		}
	}
	slices.SortFunc(all, func(a, b *leadership) int { return cmp.Compare(a.first.Before, b.first.Before) })
	return all
}

func (r *leadership) String() string {
	return fmt.Sprintf("leadership %d of process %s", r.number, r.process)
}

// leaving is the cause of a leader's ctx when its process was asked to leave: the
// view goes on until its callbacks have returned.
var leaving = context.Canceled.Error()

// ctxSlack is how much later than its view a leader's ctx may end: a busy
// machine's time to run a goroutine.
const ctxSlack = 500 * time.Millisecond

// check returns what is wrong with what the processes logged, each under a name
// of its own.
func check(logs map[string][]line) []string {
	all := leaderships(logs)
	var problems []string
	for i, r := range all {
		problems = append(problems, r.problems...)
		for _, l := range []line{r.first, r.last} {
			if l.Before > l.After {
				problems = append(problems, fmt.Sprintf("%s: the machine's clock went back: nothing can be told", r))
			}
		}
		if i == 0 {
			continue
		}
		// Every earlier one, and not only the last: one may have been stopped
		// through several leaderships.
		for _, before := range all[:i] {
			if r.number <= before.number {
				problems = append(problems, fmt.Sprintf("%s began after %s: fencing tokens must grow", r, before))
			}
			if overlap := time.Duration(before.last.Before - r.first.After); overlap > 0 {
				problems = append(problems, fmt.Sprintf("%s overlaps %s by %v", r, before, overlap))
			}
		}
	}
	return problems
}

// ctxEnded says what is wrong with how a leadership ended that ran out: its ctx must
// end with its view.
func ctxEnded(r *leadership) error {
	switch {
	case r.out == nil:
		return fmt.Errorf("%s: its ctx never ended", r)
	case time.Duration(r.out.Before-r.last.End) > ctxSlack:
		return fmt.Errorf("%s: its ctx ended %v after its view", r, time.Duration(r.out.Before-r.last.End))
	}
	return nil
}
