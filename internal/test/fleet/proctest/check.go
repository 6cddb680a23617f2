package proctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/sim/spec"
)

// leaving is the cause of a leader's ctx when its process was asked to leave: the
// view goes on until its callbacks have returned.
var leaving = context.Canceled.Error()

// ctxSlack is how much later than its view a leader's ctx may end: a busy
// machine's time to run a goroutine.
const ctxSlack = 500 * time.Millisecond

// check judges what the processes logged, each under a name of its own.
func check(logs map[string][]line) (all []*fleet.Leadership, problems []string) {
	var acts []fleet.Act
	for process, lines := range logs {
		outs := map[uint64]line{} // of its leaderships
		for _, l := range lines {
			switch l.Kind {
			case out:
				outs[l.Number] = l
			case act:
				acts = append(acts, fleet.Act{By: process, Token: l.Number, Before: l.Before, After: l.After, End: l.End})
				if o, ended := outs[l.Number]; ended && o.Before < l.Before && o.Why != leaving {
					problems = append(problems, fmt.Sprintf("process %s, leadership %d: it acted %v after its ctx had ended (%s)", process, l.Number, time.Duration(l.Before-o.Before), o.Why))
				}
			}
		}
	}
	all, wrong := fleet.Judge(acts)
	return all, append(problems, wrong...)
}

// ctxEnded reports whether the ctx of a leadership has ended, by what its process logged, and by how much that was too late.
func ctxEnded(lines []line, number uint64) (ended bool, late time.Duration) {
	var view int64
	for _, l := range lines {
		switch {
		case l.Kind == act && l.Number == number:
			view = l.End
		case l.Kind == out && l.Number == number:
			return true, max(0, time.Duration(l.Before-view)-ctxSlack)
		}
	}
	return false, 0
}

// checkWrites returns what is wrong with what the processes wrote, by the specification of the record.
func checkWrites(logs map[string][]line, skew time.Duration) error {
	var writes []spec.Write
	for _, process := range slices.Sorted(maps.Keys(logs)) {
		its := map[uint64]int{}
		for _, l := range logs[process] {
			switch l.Kind {
			case writing:
				its[l.Write] = len(writes)
				writes = append(writes, spec.Write{By: "process " + process, Began: time.Unix(0, l.Before), Entry: *l.Entry})
			case landed:
				writes[its[l.Write]].Sure = true
			}
		}
	}
	return spec.Check(spec.Record{Skew: skew}, writes)
}
