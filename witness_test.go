package leaderelection

import (
	"testing"
	"time"
)

// What a stamp of an own write proves of a clock whose bound is tS.
func TestWitnessStamps(t *testing.T) {
	const s, odd = time.Second, 1 // a stamp that does not end in zeros is exact
	for name, c := range map[string]struct {
		stamp, begun, answered time.Duration
		before, offset         time.Duration
		ahead                  bool
	}{
		"right":                          {stamp: odd, begun: 0, answered: 2, before: s, offset: 0},
		"ahead by the bound":             {stamp: odd, begun: tS + odd, answered: tS + odd, before: s, offset: 0},
		"ahead":                          {stamp: odd, begun: tS + odd + 1, answered: tS + odd + 1, offset: tS + 1, ahead: true},
		"behind by the bound":            {stamp: tS + odd, begun: odd, answered: odd, before: s, offset: 0},
		"behind":                         {stamp: tS + odd + 1, begun: 0, answered: odd, offset: -tS - 1},
		"a slow write proves nothing":    {stamp: tS + odd, begun: 0, answered: 9 * s, offset: 0},
		"nor does it end a proof":        {stamp: odd, begun: 0, answered: 9 * s, before: 3 * s, offset: 3 * s},
		"a proof is replaced":            {stamp: odd, begun: -9*s + odd, answered: -9*s + odd, before: 3 * s, offset: -9 * s},
		"ahead, and set right meanwhile": {stamp: odd, begun: 9*s + odd, answered: odd, offset: 9 * s, ahead: true},
		"whole seconds may be two":       {stamp: 0, begun: tS + 2*s - 1, answered: tS + 2*s - 1, offset: 0},
		"and prove what is further":      {stamp: 0, begun: tS + 2*s, answered: tS + 2*s, offset: tS + 1, ahead: true},
		"and behind":                     {stamp: tS + 2*s, begun: 0, answered: 0, offset: -tS - 1},
		"a millisecond may be cut off":   {stamp: time.Millisecond, begun: tS + 2*time.Millisecond - 1, answered: tS + 2*time.Millisecond - 1, offset: 0},
		"no stamp":                       {stamp: never, begun: time.Hour, answered: time.Hour, before: s, offset: s},
		"one that no clock has made":     {stamp: -2 * maxAge / 2 * 2, begun: 0, answered: 0, before: s, offset: s},
		"the furthest that one has":      {stamp: -maxAge, begun: 0, answered: 0, offset: maxAge, ahead: true},
		"one that is sixty years ahead":  {stamp: 60 * MaxTermLength, begun: 0, answered: 0, offset: -60 * MaxTermLength},
	} {
		t.Run(name, func(t *testing.T) {
			w, stamp := witness{offset: c.before}, time.Time{}
			if c.stamp != never {
				stamp = zero.Add(c.stamp)
			}
			ahead := w.observe(stamp, at(c.begun), at(c.answered), tS)
			near := time.Duration(0)
			if c.stamp%time.Second == 0 && c.offset != 0 {
				near = 2 * time.Second // what the stamp may have lost is taken off
			}
			if ahead != c.ahead || (w.offset-c.offset).Abs() > near || w.wrong() != (c.offset != 0) {
				t.Errorf("ahead %t, offset %v; want %t, %v", ahead, w.offset, c.ahead, c.offset)
			}
		})
	}
}

// The clock's own bound counts while it is beyond MaxClockSkew, besides what stamps prove.
func TestWitnessOwnBound(t *testing.T) {
	w := witness{}
	for _, c := range []struct {
		bound time.Duration
		wrong bool
	}{{tS, false}, {tS + 1, true}, {0, false}} {
		if w.own(c.bound, tS); w.wrong() != c.wrong || c.wrong && w.bound != c.bound {
			t.Errorf("a bound of %v: %+v", c.bound, w)
		}
	}
	w.offset = time.Minute
	if w.own(0, tS); !w.wrong() {
		t.Error("a clock that cannot tell ends what a stamp has proved")
	}
}

// resolution is what a stamp may have lost.
func TestWitnessResolution(t *testing.T) {
	for ns, want := range map[int]time.Duration{
		0: 2*time.Second - 1, 500_000_000: 100*time.Millisecond - 1, 120_000_000: 10*time.Millisecond - 1,
		123_456_000: time.Microsecond - 1, 123_456_789: 0, 100: 99,
	} {
		if got := resolution(time.Unix(5, int64(ns))); got != want {
			t.Errorf("of %d ns: %v, want %v", ns, got, want)
		}
	}
}

// Clocks disagree if a term ends later than a clock that is ahead by MaxClockSkew writes, and one that is behind by as
// much reads.
func TestClocksDisagreeBeyondTheBounds(t *testing.T) {
	for name, c := range map[string]struct {
		of  *RaceEntry
		far bool
	}{
		"within":        {held(3, 2*tS), false},
		"beyond":        {held(3, 2*tS+1), true},
		"a vacancy":     {vacant(3, reserved("c", time.Hour)), false},
		"marked":        {held(3, time.Hour, unmeasured), false},
		"of no length":  {held(3, time.Hour, ofTerm(0)), false},
		"of any length": {held(3, time.Hour, ofTerm(MaxTermLength+1)), false},
	} {
		if err := tooFar(c.of, zero, tS); (err != nil) != c.far {
			t.Errorf("%s: %v", name, err)
		}
	}
}
