package proctest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
)

// The checker is worth what it finds: forged logs, each with one fault.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	acts := func(number uint64, from, to, end int64) (lines []line) {
		for at := from; at <= to; at += 2 {
			lines = append(lines, line{Kind: act, Number: number, Before: ms(at), After: ms(at) + 1000, End: ms(end)})
		}
		return lines
	}
	join := func(all ...[]line) (lines []line) {
		for _, l := range all {
			lines = append(lines, l...)
		}
		return lines
	}
	for name, c := range map[string]struct {
		logs map[string][]line
		want string // empty: nothing is wrong
	}{
		"good": {map[string][]line{
			"a": join(acts(1, 0, 100, 110), acts(3, 300, 400, 500)),
			"b": acts(2, 110, 200, 210),
		}, ""},
		"overlap": {map[string][]line{
			"a": acts(1, 0, 120, 130),
			"b": acts(2, 110, 200, 210),
		}, "leadership 2 of process b overlaps leadership 1 of process a by"},
		"one act too many": {map[string][]line{
			"a": join(acts(1, 0, 100, 200), acts(1, 150, 150, 200)),
			"b": acts(2, 110, 200, 210),
		}, "overlaps"},
		"overlap with a leadership before the last": {map[string][]line{
			"a": join(acts(1, 0, 100, 200), acts(1, 310, 310, 320)),
			"b": acts(2, 110, 200, 210),
			"c": acts(3, 300, 400, 410),
		}, "leadership 3 of process c overlaps leadership 1 of process a"},
		"a stopped act is no proof of overlap": {map[string][]line{
			"a": join(acts(1, 0, 100, 200), []line{{Kind: act, Number: 1, Before: ms(102), After: ms(500), End: ms(200)}}),
			"b": acts(2, 210, 300, 310),
		}, ""},
		"the same token twice": {map[string][]line{
			"a": acts(1, 0, 100, 110),
			"b": acts(1, 110, 200, 210),
		}, "must grow"},
		"a token goes back": {map[string][]line{
			"a": acts(5, 0, 100, 110),
			"b": acts(4, 110, 200, 210),
		}, "must grow"},
		"a view's end goes back": {map[string][]line{
			"a": join(acts(1, 0, 100, 300), acts(1, 102, 110, 200)),
		}, "went back by"},
		"acts after the end of its ctx": {map[string][]line{
			"a": join(acts(1, 0, 100, 300), []line{{Kind: out, Number: 1, Before: ms(101), After: ms(101), Why: "ousted"}}, acts(1, 102, 110, 300)),
		}, "after its ctx had ended (ousted)"},
		"acts while it leaves": {map[string][]line{
			"a": join(acts(1, 0, 100, 300), []line{{Kind: out, Number: 1, Before: ms(101), After: ms(101), Why: leaving}}, acts(1, 102, 110, 300)),
		}, ""},
		"the machine's clock is set back": {map[string][]line{
			"a": {{Kind: act, Number: 1, Before: ms(10), After: ms(5), End: ms(20)}},
		}, "clock went back"},
	} {
		got := strings.Join(check(c.logs), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

func TestCtxEndsWithTheView(t *testing.T) {
	const end = int64(time.Minute)
	r := &leadership{number: 1, process: "a", last: line{End: end}}
	for name, c := range map[string]struct {
		out  *line
		good bool
	}{
		"never":    {nil, false},
		"before":   {&line{Before: end - 5}, true},
		"with it":  {&line{Before: end + int64(ctxSlack)}, true},
		"too late": {&line{Before: end + int64(ctxSlack) + 1}, false},
	} {
		r.out = c.out
		if err := ctxEnded(r); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
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
		err := checkWrites(map[string][]line{"a": c.a, "b": c.b}, time.Second)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
