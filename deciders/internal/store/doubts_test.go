package store_test

import (
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// A record is in doubt while a write of its Incarnation is open, until a version is safe
// or a later write was answered.
func TestDoubts(t *testing.T) {
	var d store.Doubts
	about := func(incarnation, version string, want bool) {
		t.Helper()
		if d.About(incarnation, version) != want {
			t.Errorf("about %q at %q: %v", incarnation, version, !want)
		}
	}
	about("a", "1", false)
	first, lost := d.Begin("a")
	about("a", "1", true)
	about("a", "", false)
	about("b", "1", false)
	lost()
	about("a", "1", false)
	lost() // again
	second, _ := d.Begin("a")
	third, lost := d.Begin("a")
	lost()
	about("a", "1", true) // of the second
	d.Settle("1")
	about("a", "1", false)
	about("a", "2", true)
	other, _ := d.Begin("b")
	d.Landed(second, "3")
	about("a", "2", false)
	about("b", "2", true)
	if first >= second || second >= third || third >= other {
		t.Error(first, second, third, other)
	}
}
