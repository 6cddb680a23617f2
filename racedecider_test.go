package leaderelection

import (
	"testing"
	"time"
)

// odd tokens: of a type that cannot be compared, and of one that may hold such a value.
type (
	bytesToken []byte
	anyToken   struct {
		revision int
		any
	}
)

func (bytesToken) CommitTS() time.Time { return time.Time{} }
func (anyToken) CommitTS() time.Time   { return time.Time{} }

// Tokens of every type can be compared, with one another and with none.
func TestSameVersion(t *testing.T) {
	for name, c := range map[string]struct {
		a, b LeaderToken
		want bool
	}{
		"none":             {nil, nil, true},
		"none and one":     {nil, version{of: "1"}, false},
		"one and none":     {bytesToken("1"), nil, false},
		"equal":            {version{of: "1"}, version{of: "1"}, true},
		"other":            {version{of: "1"}, version{of: "2"}, false},
		"two types":        {version{of: "1"}, bytesToken("1"), false},
		"slices":           {bytesToken("1"), bytesToken("1"), true},
		"other slices":     {bytesToken("1"), bytesToken("2"), false},
		"slices inside":    {anyToken{1, []int{1}}, anyToken{1, []int{1}}, true},
		"other inside":     {anyToken{1, []int{1}}, anyToken{1, []int{2}}, false},
		"two types inside": {anyToken{1, []int{1}}, anyToken{1, 1}, false},
		"a number inside":  {anyToken{1, 2}, anyToken{1, 2}, true},
		"another revision": {anyToken{1, []int{1}}, anyToken{2, []int{1}}, false},
	} {
		if got := sameVersion(c.a, c.b); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	var a, b LeaderToken = version{of: "1"}, version{of: "1"}
	if n := testing.AllocsPerRun(100, func() { sameVersion(a, b) }); n != 0 {
		t.Errorf("to compare two tokens allocates %v times", n)
	}
}
