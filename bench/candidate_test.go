package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"
)

// A process that is stopped in the midst of a look, or before it has looked again, has not
// believed while it stood still.
func TestStoppedInALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newCandidate(role{Elections: 1})
		c.out = json.NewEncoder(&out)
		begin := time.Now()
		view := begin.Add(time.Second)
		stop := time.Duration(0)
		leads := func() bool {
			time.Sleep(stop)
			return time.Now().Before(view)
		}
		c.beliefs[0] = belief{told: leads, asked: leads}
		for range 100 {
			c.look(0)
			time.Sleep(sampling)
		}
		seen := time.Now().Add(-sampling)
		stop = time.Minute
		c.look(0)
		var events []event
		for d := json.NewDecoder(&out); d.More(); {
			var e event
			if err := d.Decode(&e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
		for _, what := range []string{told, asked} {
			s := spans(events, 0, what, time.Now())
			if len(s) != 1 || !s[0].from.Equal(begin) || !s[0].to.Equal(seen) {
				t.Errorf("%s: %v, want from %v to %v", what, s, begin, seen)
			}
		}
	})
}
