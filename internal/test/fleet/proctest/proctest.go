// Package proctest holds an election among real processes on a real store: three
// candidates, each a process of its own with a clock that is off by as much as
// is allowed. One leader is killed (SIGKILL), the next is stopped past its term
// and let go on (SIGSTOP, SIGCONT), the next is cut off from the store
// (a relay), the last leaves in order. From what each process logged it is
// checked that no two leaderships overlap, that fencing tokens only grow, that a
// leader is back in time, and that every write was one that the rules allow (internal/test/sim/spec).
//
// The candidates are the test binary itself, started again:
//
//	func TestMain(m *testing.M) {
//		proctest.Main(mystore.Open)
//		goleak.VerifyTestMain(m) // or os.Exit(m.Run())
//	}
//
//	func TestProcesses(t *testing.T) {
//		server := stores.MyStore(t)
//		proctest.Run(t, proctest.Options{Address: "mystore://" + server + "/election", Upstream: server})
//	}
//
// What a process logs is an act: two readings of the machine's clock, between
// which its view was in the future. All processes read the same clock, so acts
// of different processes can be put in order; the candidates' own clocks, from
// which the views follow, are set apart.
package proctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/fleet"
	"github.com/c8e606e4/leaderelection/internal/test/sim/spec"
)

// Options says where the store is. Only Address is required.
type Options struct {
	// Address is the URL that Main's open opens in each process. The election must be empty.
	Address string
	// Upstream is the host and port of the store where it speaks TCP. Each
	// candidate then reaches it through a proxy of its own, whose address
	// takes the place of Upstream in Address, and one leader is cut off.
	// Empty: that part is left out.
	Upstream string
	// Env is added to the environment of each process, each "name=value".
	Env []string

	patience time.Duration // with what nothing is promised about; zero: 30 s
}

const (
	term = 2 * time.Second
	skew = 200 * time.Millisecond // the clocks are apart by as much
	// slack is how much later than a term and two skews a leader may be back: the store's own time for a
	// read and a write, and a busy machine's for waking up three processes.
	slack = time.Second
	// bound is when a leader must be back after the last sign of the one before.
	bound = term + 2*skew + slack
)

// line is what a candidate's process prints, as JSON, one a line. Times are
// nanoseconds since 1970 by the machine's clock, without the candidate's offset.
type line struct {
	Kind   kind
	Number uint64 `json:",omitempty"` // act, out: of the leadership; news: of the record
	// Before and After enclose what is told.
	Before, After int64
	End           int64  `json:",omitempty"` // act, out: the view's end by the candidate's clock, told as the machine's
	Why           string `json:",omitempty"` // out: the cause; failed: the error

	Write uint64                    `json:",omitempty"` // writing, landed: which of the process's
	Entry *leaderelection.RaceEntry `json:",omitempty"` // writing
}

type kind string

const (
	act     kind = "act"     // the view was in the future
	out     kind = "out"     // the leader's ctx has ended
	news    kind = "news"    // a new leadership, one's own or another's, or a vacancy, was learned
	writing kind = "writing" // a write is about to begin
	landed  kind = "landed"  // it has worked
	stopped kind = "stopped" // the campaign has ended in order
	failed  kind = "failed"  // it could not be held
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
func checkWrites(logs map[string][]line) error {
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
