package proctest

import (
	"strings"
	"testing"
	"time"
)

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
		"overlap": {map[string][]ownership{
			"a": {{7, 1, 100, 201}},
			"b": {{7, 2, 200, 300}},
		}, "shard 7: process b acts by token 2, 1ns before process a acts for the last time, by token 1"},
		"overlap with one before the last": {map[string][]ownership{
			"a": {{7, 1, 100, 500}},
			"b": {{7, 2, 600, 700}},
			"c": {{7, 3, 800, 900}},
			"d": {{7, 4, 650, 660}},
		}, "process d acts by token 4"},
		"a token twice": {map[string][]ownership{
			"a": {{7, 1, 100, 200}},
			"b": {{7, 1, 300, 400}},
		}, "have token 1"},
		"a token that went back": {map[string][]ownership{
			"a": {{7, 2, 100, 200}},
			"b": {{7, 1, 300, 400}},
		}, "process a acts by token 2"},
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
