package shard

import "testing"

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
