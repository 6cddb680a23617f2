package skew_test

import (
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/skew"
)

// The true time at the beginning; its last digits say that stamps are exact.
var begin = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)

const (
	bound  = time.Second
	memory = time.Minute
)

// reads is what a clock shows at the true time after, when it is ahead by off.
func reads(after, off time.Duration) skew.Reading {
	return skew.Reading{Wall: begin.Add(after + off), Mono: after}
}

func TestFault(t *testing.T) {
	type look struct {
		stamp   time.Duration // true time
		asked   time.Duration // when the write was begun; -1: not one's own
		at, off time.Duration // when the answer is here, and how far ahead the clock is then
	}
	for name, c := range map[string]struct {
		looks   []look
		at, off time.Duration // when it is asked for the fault
		want    time.Duration // 0: none
	}{
		"right":                                 {[]look{{1, 0, 2, 0}}, 3, 0, 0},
		"ahead, at the bound":                   {[]look{{0, 0, 2, bound}}, 3, bound, 0},
		"ahead":                                 {[]look{{0, 0, 2, 5 * time.Second}}, 3, 5 * time.Second, 5 * time.Second},
		"ahead, but the request was out":        {[]look{{time.Second, 0, 2 * time.Second, bound + time.Second}}, 3, bound + time.Second, 0},
		"ahead, by another's record":            {[]look{{0, -1, 2, time.Hour}}, 3, time.Hour, 0},
		"behind, by another's record":           {[]look{{time.Second, -1, time.Second, -5 * time.Second}}, time.Second, -5 * time.Second, 0},
		"behind, by a write of its own":         {[]look{{1, 0, 2, -5 * time.Second}}, 3, -5 * time.Second, -5 * time.Second},
		"a doubt that a slow write leaves open": {[]look{{time.Second, -1, time.Second, -5 * time.Second}, {time.Second + 1, time.Second, 6 * time.Second, -5 * time.Second}}, 6 * time.Second, -5 * time.Second, -5 * time.Second},
		"a doubt that is disproved":             {[]look{{time.Hour, -1, 1, 0}, {2, 1, 3, 0}}, 4, 0, 0},
		"a stamp of one's own, read again":      {[]look{{time.Hour, 0, 1, 0}, {time.Hour, -1, memory / 2, 0}}, memory + 2, 0, 0},
		"set right since":                       {[]look{{0, 0, 2, 5 * time.Second}}, 3, 0, 0},
		"set further ahead since":               {[]look{{0, 0, 2, 5 * time.Second}}, 3, time.Hour, 5 * time.Second},
		"grown old":                             {[]look{{0, 0, 2, 5 * time.Second}}, memory + 3, 5 * time.Second, 0},
		"a slow write shows less":               {[]look{{0, 0, 2, 5 * time.Second}, {time.Second + 2*time.Second, time.Second, 4 * time.Second, 5 * time.Second}}, 5 * time.Second, 5 * time.Second, 5 * time.Second},
		"disproved by a later record":           {[]look{{0, 0, 2, 5 * time.Second}, {time.Second, -1, time.Second, 5*time.Second - 4900*time.Millisecond}}, time.Second, 100 * time.Millisecond, 0},
		"no clock made such a stamp":            {[]look{{-200 * 365 * 24 * time.Hour, 0, 2, 0}}, 3, 0, 0},
	} {
		k := skew.New(bound, memory, begin)
		for _, l := range c.looks {
			var begun *skew.Reading
			if l.asked >= 0 {
				r := reads(l.asked, l.off)
				begun = &r
			}
			k.Observe(begin.Add(l.stamp), begun, reads(l.at, l.off))
		}
		f, wrong := k.Fault(reads(c.at, c.off))
		if wrong != (c.want != 0) || f.Own || (f.Offset-c.want).Abs() > 10 {
			t.Errorf("%s: %+v, %t, want %v", name, f, wrong, c.want)
		}
	}
}

// What a clock says of itself counts while it says so.
func TestOwnBound(t *testing.T) {
	k := skew.New(bound, memory, begin)
	for _, c := range []struct {
		own   time.Duration
		wrong bool
	}{{bound, false}, {bound + 1, true}, {0, false}} {
		k.ObserveOwn(c.own)
		if f, wrong := k.Fault(reads(1, 0)); wrong != c.wrong || wrong != k.Doubts() || wrong && (f != skew.Fault{Offset: c.own, Own: true}) {
			t.Errorf("%v: %+v, %t", c.own, f, wrong)
		}
	}
}

// What came too early is known by its stamp alone.
func TestEarly(t *testing.T) {
	k := skew.New(bound, memory, begin)
	for name, c := range map[string]struct {
		stamp, shown, until time.Duration
		early               bool
	}{
		"by a right clock":      {10 * time.Second, 10 * time.Second, 20 * time.Second, false}, // whoever made it write
		"by one that is ahead":  {10 * time.Second, time.Hour, 20 * time.Second, true},
		"ahead, and in time":    {20*time.Second + time.Millisecond, time.Hour, 20 * time.Second, false},
		"ahead within bounds":   {10 * time.Second, 11 * time.Second, 20 * time.Second, false},
		"by one that is behind": {10 * time.Second, 0, 20 * time.Second, false},
	} {
		if early, known := k.Early(begin.Add(c.stamp), begin.Add(c.shown), begin.Add(c.until)); early != c.early || !known {
			t.Errorf("%s: %t, %t", name, early, known)
		}
	}
	// A stamp of whole seconds may be 2 s from the moment of the write, either way.
	coarse := begin.Truncate(time.Second).Add(10 * time.Second)
	for _, c := range []struct {
		shown, until time.Duration // after the stamp
		early        bool
	}{
		{bound + 2*time.Second, time.Second, true},
		{bound + 2*time.Second - 1, time.Second, false}, // it may be within bounds
		{time.Hour, 0, true},
		{time.Hour, -2*time.Second + 2, true}, // it may have been made before the stamp
		{time.Hour, -2 * time.Second, false},
	} {
		if early, _ := k.Early(coarse, coarse.Add(c.shown), coarse.Add(c.until)); early != c.early {
			t.Errorf("a coarse stamp, begun %v after it, of what was over %v after it: early is %t", c.shown, c.until, early)
		}
	}
	if early, known := k.Early(time.Time{}, begin, begin.Add(time.Hour)); early || known {
		t.Errorf("without a stamp: %t, %t", early, known)
	}
}

// Stamps that were cut off are given what they may have lost.
func TestCoarseStamps(t *testing.T) {
	for _, unit := range []time.Duration{time.Microsecond, time.Millisecond, time.Second} {
		for _, c := range []struct {
			off   time.Duration
			wrong bool
		}{{bound, false}, {bound + 3*unit, true}, {-bound, false}, {-bound - 3*unit, true}} {
			k := skew.New(bound, memory, begin)
			r := reads(0, c.off)
			k.Observe(begin.Truncate(unit), &r, r)
			if f, wrong := k.Fault(r); wrong != c.wrong {
				t.Errorf("unit %v, off by %v: %+v, %t", unit, c.off, f, wrong)
			}
		}
	}
}

// A proof says when it grows old.
func TestExpires(t *testing.T) {
	k := skew.New(bound, memory, begin)
	if at, any := k.Expires(reads(0, 0)); any {
		t.Errorf("nothing is proved, and grows old at %v", at)
	}
	r := reads(0, time.Hour)
	k.Observe(begin, &r, r)
	if at, any := k.Expires(reads(1, time.Hour)); !any || at != memory {
		t.Errorf("grows old at %v, %t, want %v", at, any, memory)
	}
	// Drift is no step back: an hour later the clock may have been slewed by 1.8 s.
	later := skew.Reading{Wall: begin.Add(2*time.Hour - time.Second), Mono: time.Hour}
	if none, some := k.Ahead(later, 0), k.Ahead(later, skew.MaxDrift); none != time.Hour-time.Second || some != time.Hour {
		t.Errorf("ahead by %v, or by %v if that was drift", none, some)
	}
}
