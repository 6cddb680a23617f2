//go:build go1.25

package leaderelection

import (
	"fmt"
	"testing"
	"time"
)

// at is an instant so many seconds after some beginning.
func at(s int) instant {
	d := time.Duration(s) * time.Second
	return instant{wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(d), mono: d}
}

// entry is a record of process who.
func entry(who string, number ElectionNumber, ext uint64) *RaceEntry {
	e := &RaceEntry{LeaderID: who, Incarnation: who, ElectionNumber: number, Extension: ext, TermLength: 10 * time.Second}
	e.TermExpiry = at(int(10*number) + int(ext)).wall
	e.WriteID = fmt.Sprint(who, number, ext)
	return e
}

// What is learned, and how, decides what is news, what the next write is conditional on,
// and since when it is so.
func TestKnowledgeLearns(t *testing.T) {
	type step struct {
		e          *RaceEntry
		how        source
		began, now int // seconds
	}
	old, newer, twin := entry("a", 1, 1), entry("a", 1, 2), entry("b", 1, 2)
	asked, left := entry("a", 1, 1), entry("a", 1, 1)
	asked.Extension, asked.Successor = 2, "b"
	left.Extension, left.LeaderID = 2, ""
	for name, c := range map[string]struct {
		steps                      []step
		news                       bool // the last step's
		latest, base               *RaceEntry
		baseAt, readAt, sameAt     int
		unsure                     bool
		firstSeenBase, firstSeenAt int
	}{
		"nothing before":                      {[]step{{old, wasRead, 1, 2}}, true, old, old, 1, 1, 1, false, 2, 2},
		"pushed, it is news and no read":      {[]step{{old, wasPushed, 1, 2}}, true, old, old, 1, 0, 0, true, 2, 2},
		"read again, it is the same":          {[]step{{old, wasRead, 1, 2}, {old, wasRead, 3, 4}}, false, old, old, 3, 3, 3, false, 2, 2},
		"pushed again, it is nothing":         {[]step{{old, wasRead, 1, 2}, {old, wasPushed, 3, 4}}, false, old, old, 1, 1, 1, false, 2, 2},
		"newer, pushed":                       {[]step{{old, wasRead, 1, 2}, {newer, wasPushed, 3, 4}}, true, newer, newer, 3, 1, 0, false, 4, 4},
		"newer, written":                      {[]step{{old, wasRead, 1, 2}, {newer, wasWritten, 3, 4}}, true, newer, newer, 3, 1, 0, false, 4, 4},
		"written, and pushed before":          {[]step{{newer, wasPushed, 2, 2}, {newer, wasWritten, 1, 3}}, false, newer, newer, 1, 0, 0, true, 2, 2},
		"older, pushed, is no news":           {[]step{{newer, wasRead, 1, 2}, {old, wasPushed, 3, 4}}, false, newer, newer, 1, 1, 1, false, 2, 2},
		"older, read, is what writes meet":    {[]step{{newer, wasRead, 1, 2}, {old, wasRead, 3, 4}}, false, newer, old, 3, 3, 1, false, 4, 2},
		"older, written, changes nothing":     {[]step{{newer, wasRead, 1, 2}, {old, wasWritten, 3, 4}}, false, newer, newer, 1, 1, 1, false, 2, 2},
		"replicas that take turns":            {[]step{{newer, wasRead, 1, 2}, {old, wasRead, 3, 4}, {newer, wasRead, 5, 6}, {old, wasRead, 7, 8}}, false, newer, old, 7, 7, 5, false, 4, 2},
		"of the same order, but another's":    {[]step{{newer, wasRead, 1, 2}, {twin, wasRead, 3, 4}}, false, newer, twin, 3, 3, 1, false, 4, 2},
		"told of, undone, and another's read": {[]step{{newer, wasPushed, 1, 2}, {twin, wasRead, 3, 4}}, true, twin, twin, 3, 3, 3, false, 4, 4},
		"told of, and vacant when it is read": {[]step{{newer, wasPushed, 1, 2}, {left, wasRead, 3, 4}}, true, left, left, 3, 3, 3, false, 4, 4},
		"told of, and a request over less":    {[]step{{newer, wasPushed, 1, 2}, {asked, wasRead, 3, 4}}, false, newer, asked, 3, 3, 0, false, 4, 2},
		"a read asks no more what was unsure": {[]step{{old, wasPushed, 1, 2}, {old, wasRead, 3, 4}}, false, old, old, 3, 3, 3, false, 2, 2},
	} {
		k := knowledge{skew: time.Second, term: time.Minute, unsure: true}
		var news bool
		for _, s := range c.steps {
			news = k.learn(s.e, at(s.began), at(s.now), s.how)
		}
		if news != c.news || k.latest != c.latest || k.base != c.base {
			t.Errorf("%s: news %t, latest %+v, base %+v", name, news, k.latest, k.base)
		}
		for _, moment := range []struct {
			what string
			got  time.Duration
			want int
		}{{"base", k.ofBase.at.mono, c.baseAt}, {"read", k.readAt.mono, c.readAt}, {"same", k.ofLatest.read.mono, c.sameAt},
			{"base first seen", k.firstSeen(k.base), c.firstSeenBase}, {"latest first seen", k.firstSeen(k.latest), c.firstSeenAt}} {
			if moment.got != time.Duration(moment.want)*time.Second {
				t.Errorf("%s: %s at %v, want %d s", name, moment.what, moment.got, moment.want)
			}
		}
		if k.unsure != c.unsure {
			t.Errorf("%s: unsure %t", name, k.unsure)
		}
	}
}

// Of two records of one order that a feed tells of, a read decides, whichever it shows.
func TestKnowledgeOfTwoIsDisputed(t *testing.T) {
	one, two := entry("a", 1, 2), entry("b", 1, 2)
	type told struct {
		e   *RaceEntry
		how source
	}
	for name, c := range map[string]struct {
		all  []told
		want bool
	}{
		"one":                   {[]told{{one, wasPushed}, {one, wasPushed}}, false},
		"two":                   {[]told{{one, wasPushed}, {two, wasPushed}}, true},
		"the first again":       {[]told{{one, wasPushed}, {two, wasPushed}, {one, wasPushed}}, true},
		"the first is read":     {[]told{{one, wasPushed}, {two, wasPushed}, {one, wasRead}}, false},
		"the second is read":    {[]told{{one, wasPushed}, {two, wasPushed}, {two, wasRead}}, false},
		"another than was read": {[]told{{one, wasRead}, {two, wasPushed}}, false},
		"a newer one":           {[]told{{one, wasPushed}, {two, wasPushed}, {entry("a", 1, 3), wasPushed}}, false},
	} {
		k := knowledge{skew: time.Second, term: time.Minute}
		for i, s := range c.all {
			k.learn(s.e, at(i), at(i), s.how)
		}
		if k.disputed != c.want {
			t.Errorf("%s: disputed %v", name, k.disputed)
		}
	}
}

// When a term ends, by which clock.
func TestKnowledgeKnowsWhenTermsEnd(t *testing.T) {
	held := entry("a", 1, 0)
	marked := entry("a", 1, 0)
	marked.Unsynchronized = true
	ahead := entry("a", 1, 0)
	ahead.TermExpiry = at(3600).wall
	reserved := entry("", 1, 0)
	reserved.Successor = "b"
	for name, c := range map[string]struct {
		e              *RaceEntry
		unsynchronized bool
		of             func(*knowledge, *RaceEntry) deadline
		want           deadline
	}{
		"its writer's clock":   {held, false, (*knowledge).ends, deadline{wall: held.TermExpiry}},
		"everybody's clock":    {held, false, (*knowledge).over, deadline{wall: held.TermExpiry.Add(time.Second)}},
		"disproved, two terms": {ahead, false, (*knowledge).over, deadline{wall: ahead.TermExpiry.Add(time.Second), sooner: 2*time.Second + 2*10*time.Second}},
		"no clock is compared": {held, true, (*knowledge).over, deadline{mono: 2*time.Second + 11*time.Second}},
		"its mark counts":      {marked, false, (*knowledge).ends, deadline{mono: 2*time.Second + 10*time.Second}},
		"a reservation":        {reserved, false, (*knowledge).reservedUntil, deadline{wall: held.TermExpiry, sooner: 13 * time.Second}},
	} {
		k := knowledge{skew: time.Second, term: time.Minute, unsynchronized: c.unsynchronized}
		k.learn(c.e, at(1), at(2), wasRead)
		if got := c.of(&k, c.e); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Deadlines have come when each has, by the wall clock or sooner by the monotonic one.
func TestDeadlinesReached(t *testing.T) {
	wall, sooner, mono := deadline{wall: at(7).wall}, deadline{wall: at(90).wall, sooner: 5 * time.Second}, deadline{mono: 6 * time.Second}
	for n, want := range map[int]deadlines{0: nil, 5: {sooner}, 6: {sooner, mono}, 7: {wall, sooner, mono, {}}} {
		if !want.reached(at(n)) || n > 0 && want.reached(at(n-1)) {
			t.Errorf("%+v: %t at %d s, and %t a second before", want, want.reached(at(n)), n, want.reached(at(n-1)))
		}
		wake := newAlarm(at(0))
		if wake.until(want...); n > 0 && wake.in > 5*time.Second {
			t.Errorf("%+v: woken in %v", want, wake.in)
		}
	}
}

// Which open write a record bears.
func TestAttemptsMatch(t *testing.T) {
	write := func(ext uint64, kind OpKind) attempt {
		e := entry("a", 1, ext)
		return attempt{kind: kind, incarnation: "a", id: e.WriteID, number: 1, ext: ext, expiry: e.TermExpiry}
	}
	asked := entry("a", 1, 1)
	asked.Extension, asked.Successor = 2, "b" // an operator's request over the first extension
	fresh := func() *attempts {
		return &attempts{open: []attempt{write(0, OpAcquire), write(1, OpExtend), write(3, OpExtend)}}
	}
	for name, c := range map[string]struct {
		e      *RaceEntry
		want   int // the Extension of the write that matches; -1: none
		remain int
	}{
		"the acquisition":        {entry("a", 1, 0), 0, 2},
		"an extension":           {entry("a", 1, 1), 1, 1},
		"a request on top of it": {asked, 1, 1},
		"a write of nobody":      {entry("a", 1, 2), -1, 1},
		"another's record":       {entry("b", 1, 1), -1, 1},
		"another leadership":     {entry("a", 2, 1), -1, 0},
		"a vacancy":              {entry("", 1, 1), -1, 1},
	} {
		l := fresh()
		got := -1
		if a := l.match(c.e); a != nil {
			got = int(a.ext)
		}
		if got != c.want {
			t.Errorf("%s: matches %d, want %d", name, got, c.want)
		}
		if l.settle(c.e); len(l.open) != c.remain {
			t.Errorf("%s: %d writes remain open, want %d", name, len(l.open), c.remain)
		}
		if a := l.origin(c.e); (a == nil) != (c.want < 0) || a != nil && int(a.ext) != c.want {
			t.Errorf("%s: once settled, its origin is %+v", name, a)
		}
	}
	l := fresh()
	if !l.acquiring() || l.greatest(1) != 3 || l.greatest(2) != 0 {
		t.Errorf("acquiring %t, greatest %d and %d", l.acquiring(), l.greatest(1), l.greatest(2))
	}
	if l.forgetOld(&alarm{now: at(10)}, 10*time.Second); l.acquiring() || len(l.open) != 3 || !l.wrote(entry("a", 1, 0)) {
		t.Errorf("after a term %+v are open", l.open)
	}
	for range maxLate {
		l.open = append(l.open, write(4, OpAcquire))
	}
	if l.forgetOld(&alarm{now: at(10)}, 10*time.Second); len(l.open) != 2+maxLate || l.wrote(entry("a", 1, 0)) {
		t.Errorf("after a term %d are open, want the extensions and the newest %d acquisitions", len(l.open), maxLate)
	}
}
