//go:build go1.25

package shard

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A KeyName is that of a shard only if there are so many.
func TestKeyName(t *testing.T) {
	if name := KeyName("customer 3", 1); name != "0/1" {
		t.Errorf("KeyName is %q", name)
	}
	m := &Member{owned: map[string]*Owned{"1": {name: "1", of: 4}, "a": {name: "a"}, "b/0": {name: "b/0"}}}
	for name, want := range map[string]bool{"1": true, "1/4": true, "1/5": false, "1/": false, "1/4/4": false, "01/4": false, "a": true, "a/0": false, "b/0": true, "b": false} {
		if o, _ := m.Shard(name); (o != nil) != want {
			t.Errorf("a member's shard %q: %v", name, o)
		}
	}
	for name, want := range map[string]int{"1": 1, "1/4": 1, "1/5": none, "4/4": none, "1/4/4": none, "/4": none} {
		if i := Numbered(4).index(name); i != want {
			t.Errorf("shard %q of 4 is %d, want %d", name, i, want)
		}
	}
}

// A KeyName means its shard to operators too, and to those who ask for failures.
func TestKeyNamesAreUnderstood(t *testing.T) {
	a := of(7, Numbered(2), placed{0, 1, false}, placed{0, 1, false})
	a.id, a.failures = "id", map[string][]failure{"1": {{Member: "a", Count: 1, Until: time.Now()}}}
	if known := a.public(); len(known.Failures("1/2")) != 1 || len(known.Failures("1")) != 1 || len(known.Failures("1/3")) != 0 {
		t.Errorf("failures %v, by the bare name %v", known.Failures("1/2"), known.Failures("1"))
	}
	e, err := a.entry(MaxAssignment)
	if err != nil {
		t.Fatal(err)
	}
	d := memory.NewDecider()
	d.Replace(e)
	op := Operator{Store: func(string) (leaderelection.RaceDecider, error) { return d, nil }}
	pins := func() map[string]string {
		a, err := readAssignment(d.Entry())
		if err != nil {
			t.Fatal(err)
		}
		return a.pins
	}
	if err := op.Pin(t.Context(), "1/2", "b"); err != nil || len(pins()) != 1 || pins()["1"] != "b" {
		t.Errorf("pinned: %v, %v", pins(), err)
	}
	if err := op.Unpin(t.Context(), "1/2"); err != nil || len(pins()) != 0 {
		t.Errorf("unpinned: %v, %v", pins(), err)
	}
}
