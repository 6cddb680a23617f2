package proctest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// What processes logged is judged by package fleet, but for the end of a leader's ctx.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	acts := func(number uint64, from, to, end int64) (lines []line) {
		for at := from; at <= to; at += 2 {
			lines = append(lines, line{Kind: act, Number: number, Before: at, After: at + 1, End: end})
		}
		return lines
	}
	ended := func(why string) line { return line{Kind: out, Number: 1, Before: 101, After: 101, Why: why} }
	for name, c := range map[string]struct {
		a, b []line
		want string // empty: nothing is wrong
	}{
		"good":            {slices.Concat(acts(1, 0, 100, 110), acts(3, 300, 400, 500)), acts(2, 110, 200, 210), ""},
		"overlap":         {acts(1, 0, 120, 130), acts(2, 110, 200, 210), `leadership 1 of "a" acted after the first act of leadership 2 of "b", by up to 9ns`},
		"after the view":  {acts(1, 0, 100, 90), nil, `leadership 1 of "a" acted after the end of its view`},
		"after its ctx":   {slices.Concat(acts(1, 0, 100, 300), []line{ended("ousted")}, acts(1, 102, 102, 300)), nil, "process a, leadership 1: it acted 1ns after its ctx had ended (ousted)"},
		"while it leaves": {slices.Concat(acts(1, 0, 100, 300), []line{ended(leaving)}, acts(1, 102, 110, 300)), nil, ""},
	} {
		_, problems := check(map[string][]line{"a": c.a, "b": c.b})
		if got := strings.Join(problems, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

func TestCtxEndsWithTheView(t *testing.T) {
	const end = int64(time.Minute)
	for name, c := range map[string]struct {
		number      uint64
		before      int64
		ended, good bool
	}{
		"never":    {2, end, false, true},
		"before":   {1, end - 5, true, true},
		"with it":  {1, end + int64(ctxSlack), true, true},
		"too late": {1, end + int64(ctxSlack) + 1, true, false},
	} {
		lines := []line{{Kind: act, Number: 1, End: end - 10}, {Kind: act, Number: 1, End: end}, {Kind: out, Number: c.number, Before: c.before}}
		if ended, late := ctxEnded(lines, 1); ended != c.ended || (late == 0) != c.good {
			t.Errorf("%s: %v, %v", name, ended, late)
		}
	}
}

// What the processes wrote is judged by the specification: what it finds is tested there.
func TestCheckWrites(t *testing.T) {
	begin := time.Unix(1, 0) // numbers are born with the time
	write := func(id uint64, at time.Duration, who string, number leaderelection.ElectionNumber, ext uint64, sure bool) []line {
		e := &leaderelection.RaceEntry{LeaderID: who, Incarnation: who, ElectionNumber: number, Extension: ext, WriteID: fmt.Sprint(who, id), TermLength: 10 * time.Second, TermExpiry: begin.Add(at + 10*time.Second)}
		lines := []line{{Kind: writing, Write: id, Entry: e, Before: begin.Add(at).UnixNano()}}
		if sure {
			lines = append(lines, line{Kind: landed, Write: id})
		}
		return lines
	}
	for name, c := range map[string]struct {
		a, b []line
		want string
	}{
		"good":                      {slices.Concat(write(1, 0, "a", 1, 0, true), write(2, 5*time.Second, "a", 1, 1, true)), write(1, 16*time.Second, "b", 2, 0, true), ""},
		"taken too early":           {slices.Concat(write(1, 0, "a", 1, 0, true), write(2, 5*time.Second, "a", 1, 1, true)), write(1, 14*time.Second, "b", 2, 0, true), "process b: 2.0 b"},
		"the answer has not come":   {slices.Concat(write(1, 0, "a", 1, 0, true), write(2, 5*time.Second, "a", 1, 1, false)), write(1, 14*time.Second, "b", 2, 0, true), ""},
		"both won with one number":  {write(1, 0, "a", 1, 0, true), write(1, 16*time.Second, "b", 1, 0, true), "does not raise"},
		"extends what is another's": {write(1, 0, "a", 1, 0, true), write(1, 1*time.Second, "b", 1, 1, true), "not its own"},
	} {
		err := checkWrites(map[string][]line{"a": c.a, "b": c.b})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// What members did is worth what the judge finds in it: forged ledgers, each with one fault.
func TestCheckLedgersFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		ledgers map[string][]ownership
		want    string // empty: nothing is wrong
	}{
		"good": {map[string][]ownership{
			"a": {{7, 1, 100, 200}, {8, 1, 100, 400}, {7, 5, 400, 500}},
			"b": {{7, 2, 200, 300}},
		}, ""},
		"overlap with one before the last": {map[string][]ownership{
			"a": {{7, 1, 100, 500}},
			"b": {{7, 2, 600, 700}},
			"c": {{7, 3, 800, 900}},
			"d": {{7, 4, 650, 660}},
		}, `shard 7: leadership 3 of "c" acted after the first act of leadership 4 of "d", by up to 250ns`},
		"one act too many": {map[string][]ownership{
			"a": {{7, 1, 105, 101}}, // the only one: it was over at 105
			"b": {{7, 2, 100, 300}},
		}, `leadership 1 of "a" acted after the first act of leadership 2 of "b", by up to 1ns`},
		"a token twice": {map[string][]ownership{
			"a": {{7, 1, 100, 200}},
			"b": {{7, 1, 300, 400}},
		}, `leadership 1 of "a" and leadership 1 of "b" have one token`},
	} {
		problems, _ := checkLedgers(c.ledgers)
		switch got := strings.Join(problems, "; "); {
		case c.want == "" && got != "":
			t.Errorf("%s: %s", name, got)
		case !strings.Contains(got, c.want):
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, idle := checkLedgers(map[string][]ownership{"a": {{7, 1, 100, 200}, {7, 2, 250, 300}}}); idle != 50 {
		t.Errorf("the longest time without an owner: %v", idle)
	}
}

func TestBalanced(t *testing.T) {
	for _, c := range []struct {
		each map[string]int
		want string
	}{
		{map[string]int{"a": 3, "b": 4, "gone": 0}, ""},
		{map[string]int{"a": 3, "b": 3}, "6 of 7 shards"},
		{map[string]int{"a": 7}, "1 of 2 members"},
		{map[string]int{"a": 5, "b": 2}, "from 2 to 5"},
	} {
		switch err := balanced(c.each, 7, 2); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %q", c.each, err, c.want)
		}
	}
	now := time.Unix(0, 1000)
	each, all := counts(map[string][]ownership{"a": {{7, 1, 100, 999}, {8, 1, 100, 1000}, {8, 2, 100, 2000}}}, now)
	if each["a"] != 1 || all != 1 {
		t.Errorf("counts: %v, %d", each, all)
	}
}
