package store_test

import (
	"fmt"
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

// A campaign that cannot write, and makes up an Incarnation for each try, fills no memory. What it wrote
// last stays in doubt.
func TestDoubtsForgetTheOldest(t *testing.T) {
	const remembered = 64
	var d store.Doubts
	var r store.Recent
	for i := range 10 * remembered {
		d.Begin(fmt.Sprint(i))
		r.Add(fmt.Sprint(i))
	}
	for i, want := range map[int]bool{9*remembered - 1: false, 9 * remembered: true, 10*remembered - 1: true} {
		if about, has := d.About(fmt.Sprint(i), "v"), r.Has(fmt.Sprint(i)); about != want || has != want {
			t.Errorf("%d: in doubt %t, remembered %t, want %t", i, about, has, want)
		}
	}
}
