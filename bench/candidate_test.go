package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
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
		events := eventsOf(t, &out)
		for _, what := range []string{told, asked} {
			s := spans(events, 0, what, time.Now())
			if len(s) != 1 || !s[0].from.Equal(begin) || !s[0].to.Equal(seen) {
				t.Errorf("%s: %v, want from %v to %v", what, s, begin, seen)
			}
		}
	})
}

// A process that was stopped has not believed meanwhile. One that nobody stops, and that did not
// come to look, has believed on, unless the belief has ended since: then it ended when it was last found.
func TestGaps(t *testing.T) {
	for _, steady := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			c := newCandidate(role{Elections: 2, Steady: steady})
			c.out = json.NewEncoder(&out)
			begin, ends := time.Now(), time.Now().Add(time.Second)
			always := func() bool { return true }
			c.beliefs[0] = belief{told: always, asked: always}
			c.beliefs[1] = belief{told: always, asked: func() bool { return time.Now().Before(ends) }}
			c.lookAgain(begin)
			time.Sleep(time.Minute)
			woke := time.Now()
			c.lookAgain(begin)
			events := eventsOf(t, &out)
			over := woke.Add(time.Minute)
			want := []span{{begin, begin}, {woke, over}}
			if steady {
				want = []span{{begin, over}}
			}
			if got := spans(events, 0, told, over); !slices.EqualFunc(got, want, same) {
				t.Errorf("steady %v: told in %v, want %v", steady, got, want)
			}
			if got := spans(events, 1, asked, over); len(got) != 1 || !same(got[0], span{begin, begin}) {
				t.Errorf("steady %v: asked in %v, want none after %v", steady, got, begin)
			}
		})
	}
}

func same(a, b span) bool { return a.from.Equal(b.from) && a.to.Equal(b.to) }

// eventsOf reads what a candidate has told.
func eventsOf(t *testing.T, told io.Reader) (all []event) {
	t.Helper()
	for d := json.NewDecoder(told); d.More(); {
		var e event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}
