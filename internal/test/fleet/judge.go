// Package fleet starts processes that elect a leader among them, and judges what they did.
package fleet

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// Again is a process of the test's own binary that runs the tests with names like run, and tells of them. Its
// environment has these besides.
func Again(t testing.TB, run string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run="+run, "-test.v")
	cmd.Env = append(cmd.Environ(), env...)
	return cmd
}

// Act is one act of a leader. Times are nanoseconds of a clock that all processes share.
type Act struct {
	By    string // the process
	Token uint64 // its leadership's ElectionNumber
	// Its view was in the future at a moment from Before to After.
	Before, After int64
	End           int64 // of the view, as told after that; 0: unknown
}

// Leadership is what one process did by one token.
type Leadership struct {
	By    string
	Token uint64
	Acts  int
	First int64 // the first act was over by then
	Last  int64 // the last act had not begun before
	End   int64 // of its view, as told last; 0: unknown

	clock, late, cut int64 // the worst of each that Judge tells of
}

func (l *Leadership) String() string { return fmt.Sprintf("leadership %d of %q", l.Token, l.By) }

// Judge sorts acts into leaderships, by token, and says what is wrong with them:
//
//   - two processes have one token;
//   - a leader acts when one with a greater token has begun to act, so two views were true at once, or tokens went back;
//   - a leader acts when its view is over;
//   - the end of its view goes back;
//   - the clock goes back, so nothing can be told.
//
// The acts of one leadership come in their order if they tell the end of the view.
func Judge(acts []Act) (all []*Leadership, wrong []string) {
	type id struct {
		by    string
		token uint64
	}
	known := map[id]*Leadership{}
	for _, a := range acts {
		l := known[id{a.By, a.Token}]
		if l == nil {
			l = &Leadership{By: a.By, Token: a.Token, First: a.After, Last: a.Before}
			known[id{a.By, a.Token}] = l
			all = append(all, l)
		}
		l.clock = max(l.clock, a.Before-a.After)
		if a.End != 0 {
			l.late, l.cut, l.End = max(l.late, a.Before-a.End+1), max(l.cut, l.End-a.End), a.End
		}
		l.First, l.Last = min(l.First, a.After), max(l.Last, a.Before)
		l.Acts++
	}
	slices.SortFunc(all, func(a, b *Leadership) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.First, b.First), cmp.Compare(a.By, b.By))
	})
	say := func(ns int64, format string, args ...any) {
		if ns > 0 {
			wrong = append(wrong, fmt.Sprintf(format, append(args, time.Duration(ns))...))
		}
	}
	for i, l := range all {
		say(l.late, "%v acted after the end of its view, by up to %v", l)
		say(l.cut, "%v: the end of its view went back, by up to %v", l)
		say(l.clock, "%v: the clock went back by up to %v, so nothing can be told", l)
		if i > 0 && all[i-1].Token == l.Token {
			wrong = append(wrong, fmt.Sprintf("%v and %v have one token", all[i-1], l))
		}
		// Not only the one before: an earlier one may have acted longer.
		for _, before := range all[:i] {
			say(before.Last-l.First, "%v acted after the first act of %v, by up to %v", before, l)
		}
	}
	return all, wrong
}
