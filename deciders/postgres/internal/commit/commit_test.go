package commit

import "testing"

// What synchronous_standby_names means.
func TestQuorum(t *testing.T) {
	for names, want := range map[string][2]int{
		"a": {1, 1}, "a, b": {1, 2}, "2 (a, b)": {2, 2}, "FIRST 2 (a,b,c)": {2, 3}, "any 1 ( a , b )": {1, 2}, `ANY 2 ("x, (y)", b)`: {2, 2},
		"*": {1, 4}, "FIRST 1 (*)": {1, 4}, `"*"`: {1, 1}, "ANY 5 (*)": {5, 5},
	} {
		if must, of := Quorum(names, 4); must != want[0] || of != want[1] {
			t.Errorf("%s: %d of %d, want %v", names, must, of, want)
		}
	}
}
