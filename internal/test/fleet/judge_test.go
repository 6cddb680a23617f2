package fleet

import (
	"slices"
	"strings"
	"testing"
)

const ms = 1_000_000

// acts are of one leadership, one each two milliseconds.
func acts(by string, token uint64, from, to, end int64) (all []Act) {
	for at := from; at <= to; at += 2 {
		all = append(all, Act{By: by, Token: token, Before: at * ms, After: at*ms + 1000, End: end * ms})
	}
	return all
}

// The judge is worth what it finds: forged ledgers, each with one fault.
func TestJudgeFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		acts [][]Act
		want string // empty: nothing is wrong
	}{
		"good":                     {[][]Act{acts("a", 1, 0, 100, 110), acts("b", 2, 110, 200, 210), acts("a", 3, 300, 400, 500)}, ""},
		"acts without a known end": {[][]Act{acts("a", 1, 0, 100, 0), acts("b", 2, 102, 200, 0)}, ""},
		"an act that was interrupted is no proof":   {[][]Act{acts("a", 1, 0, 100, 200), {{"a", 1, 102 * ms, 500 * ms, 200 * ms}}, acts("b", 2, 210, 300, 310)}, ""},
		"the first act of the next was interrupted": {[][]Act{acts("a", 1, 0, 100, 200), {{"b", 2, 90 * ms, 110 * ms, 200 * ms}}}, ""},
		"the end is known again":                    {[][]Act{acts("a", 1, 0, 10, 100), acts("a", 1, 12, 20, 0), acts("a", 1, 22, 30, 100)}, ""},

		"overlap": {[][]Act{acts("a", 1, 0, 120, 130), acts("b", 2, 110, 200, 210)},
			`leadership 1 of "a" acted after the first act of leadership 2 of "b", by up to 9.999ms`},
		"one act too many": {[][]Act{acts("a", 1, 0, 100, 200), acts("b", 2, 110, 200, 210), acts("a", 1, 150, 150, 200)}, `of "a" acted after the first act of leadership 2`},
		"overlap with a leadership before the last": {[][]Act{acts("a", 1, 0, 100, 320), acts("a", 1, 310, 310, 320), acts("b", 2, 110, 200, 210), acts("c", 3, 300, 400, 410)},
			`leadership 1 of "a" acted after the first act of leadership 3 of "c"`},
		"all of one within another": {[][]Act{acts("a", 1, 0, 300, 310), acts("b", 2, 100, 110, 120), acts("c", 3, 200, 210, 220)},
			`leadership 1 of "a" acted after the first act of leadership 3 of "c"`},
		"a token goes back":                {[][]Act{acts("a", 5, 0, 100, 110), acts("b", 4, 110, 200, 210)}, `leadership 4 of "b" acted after the first act of leadership 5`},
		"a process's own token":            {[][]Act{acts("a", 5, 0, 100, 110), acts("a", 4, 110, 200, 210)}, `leadership 4 of "a" acted after the first act of leadership 5`},
		"a token twice":                    {[][]Act{acts("a", 1, 0, 100, 110), acts("b", 1, 110, 200, 210)}, `leadership 1 of "a" and leadership 1 of "b" have one token`},
		"an act when the view ends":        {[][]Act{acts("a", 1, 0, 100, 100)}, `leadership 1 of "a" acted after the end of its view, by up to 1ns`},
		"an act after the end of its view": {[][]Act{acts("a", 1, 0, 100, 130), acts("a", 1, 140, 150, 130), acts("a", 1, 152, 160, 170)}, "by up to 20.000001ms"},
		"the end of a view goes back":      {[][]Act{acts("a", 1, 0, 100, 300), acts("a", 1, 102, 110, 200), acts("a", 1, 112, 120, 300)}, "the end of its view went back, by up to 100ms"},
		"the clock goes back":              {[][]Act{{{"a", 1, 10 * ms, 5 * ms, 20 * ms}}, acts("a", 1, 12, 14, 20)}, "the clock went back by up to 5ms"},
	} {
		_, wrong := Judge(slices.Concat(c.acts...))
		if got := strings.Join(wrong, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}

// Acts that do not tell of the view's end may come in any order.
func TestJudgeSorts(t *testing.T) {
	all := slices.Concat(acts("b", 2, 102, 200, 0), acts("a", 1, 0, 100, 0), acts("a", 3, 202, 202, 0))
	slices.Reverse(all)
	is, wrong := Judge(all)
	want := []Leadership{
		{By: "a", Token: 1, Acts: 51, First: 1000, Last: 100 * ms},
		{By: "b", Token: 2, Acts: 50, First: 102*ms + 1000, Last: 200 * ms},
		{By: "a", Token: 3, Acts: 1, First: 202*ms + 1000, Last: 202 * ms},
	}
	if !slices.EqualFunc(is, want, func(a *Leadership, b Leadership) bool {
		return a.First == b.First && a.Last == b.Last && a.Acts == b.Acts && a.String() == b.String()
	}) || wrong != nil {
		t.Errorf("%v, %v", is, wrong)
	}
}
