package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/state"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

const (
	term = 10 * time.Second
	skew = time.Second
)

var now = time.Date(2026, 9, 21, 13, 46, 40, 0, time.UTC)

// held is a record with token 3, extended n times, the last time at the time now.
func held(n uint64) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{LeaderID: "a", TermExpiry: now.Add(term), TermLength: term, ElectionNumber: 3, Extension: n}
}

func unsynchronized(n uint64) *leaderelection.RaceEntry {
	e := held(n)
	e.Unsynchronized = true
	e.TermExpiry = now.Add(-1000 * time.Hour) // tells nothing
	return e
}

func ahead() *leaderelection.RaceEntry {
	e := held(0)
	e.TermExpiry = now.Add(2 * time.Hour)
	return e
}

func vacant(successor string) *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{TermExpiry: now, TermLength: term, ElectionNumber: 3, Extension: 9, Successor: successor}
}

func TestOf(t *testing.T) {
	for name, c := range map[string]struct {
		entry *leaderelection.RaceEntry
		at    time.Duration
		state string
		left  float64
		text  string
	}{
		"no election yet":        {&leaderelection.RaceEntry{}, 0, state.None, 0, "nobody has led yet"},
		"led":                    {held(0), 1234567 * time.Microsecond, state.Led, 8.765, "time left  8.8s of 10s"},
		"at the term's end":      {held(0), term, state.Led, 0, "led"},
		"just before it is over": {held(0), term + skew - 1, state.Led, 0, "led"},
		"over for every clock":   {held(0), term + skew, state.Lapsed, 0, "lapsed: the term of a ran out at 2026-09-21T13:46:50Z"},
		"given up":               {vacant(""), 0, state.Vacant, 0, "vacant: given up at 2026-09-21T13:46:40Z"},
		"given up for anybody":   {vacant("*"), 0, state.Vacant, 0, "vacant: given up at"},
		"reserved":               {vacant("b"), 0, state.Vacant, 0, "vacant: reserved for b until 2026-09-21T13:46:40Z"},
		"hours ahead":            {ahead(), 0, state.Unknown, 0, "its term ends at 2026-09-21T15:46:40Z, so its leader's clock is wrong, or this one"},
		"unsynchronized":         {unsynchronized(4), 0, state.Unknown, 0, "unknown: its clock is not compared"},
	} {
		s := state.Of(c.entry, now.Add(c.at), skew, 0)
		if s.State != c.state || s.Left != c.left || !strings.Contains(s.Text(), c.text) {
			t.Errorf("%s: %+v\n%s", name, s, s.Text())
		}
	}
}

// The beginning of a leadership is worked out from its extensions; a request, which counts
// as one, is left out.
func TestSince(t *testing.T) {
	e := held(6)
	if s := state.Of(e, now, skew, 0); !s.Since.Equal(now.Add(-27 * time.Second)) {
		t.Errorf("6 extensions, each 4.5s: since %v", s.Since)
	}
	e.Extension, e.Successor = 7, "b"
	if s := state.Of(e, now, skew, 0); !s.Since.Equal(now.Add(-27 * time.Second)) {
		t.Errorf("asked to hand over: since %v", s.Since)
	}
	if s := state.Of(e, now, skew, 2*time.Second); !s.Since.Equal(now.Add(-12 * time.Second)) {
		t.Errorf("6 extensions, each 2s: since %v", s.Since)
	}
	f := state.Follower{Every: 2 * time.Second}
	if s := f.Changed(e, now, skew); !s.Since.Equal(now.Add(-12 * time.Second)) {
		t.Errorf("an observer has it since %v", s.Since)
	}
}

// Programs read these names.
func TestJSON(t *testing.T) {
	e := held(1)
	e.HostPort, e.ConnectionParams, e.Successor = []string{"10.0.0.1:80"}, []byte("x"), "b"
	for _, c := range []struct {
		entry *leaderelection.RaceEntry
		want  string
	}{
		{e, `{"state":"led","leader_id":"a","token":3,"host_port":["10.0.0.1:80"],"params":"x","term_expiry":"2026-09-21T13:46:50Z",` +
			`"term_seconds":10,"seconds_left":10,"extension":1,"since_about":"2026-09-21T13:46:40Z","successor":"b"}`},
		{vacant("b"), `{"state":"vacant","leader_id":"","token":3,"reserved_until":"2026-09-21T13:46:40Z","term_seconds":10,"seconds_left":0,"extension":9,"successor":"b"}`},
		{unsynchronized(1), `{"state":"unknown","leader_id":"a","token":3,"term_seconds":10,"seconds_left":0,"extension":1,"unsynchronized":true}`},
		{&leaderelection.RaceEntry{ConnectionParams: []byte{0xff}}, `{"state":"none","leader_id":"","token":0,"params_base64":"/w==","seconds_left":0,"extension":0}`},
	} {
		if got, err := json.Marshal(state.Of(c.entry, now, skew, 0)); err != nil || string(got) != c.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	e := held(2)
	e.HostPort, e.ConnectionParams, e.Successor = []string{"a:1", "b:2"}, []byte{0xff, 0xfe}, leaderelection.AnySuccessor
	s := state.Of(e, now, skew, 0)
	for _, want := range []string{"leader     a\n", "token      3\n", "(2 extensions)", "addresses  a:1 b:2\n", "params     2 bytes that are no text\n", "asked      to step down\n"} {
		if !strings.Contains(s.Text(), want) {
			t.Errorf("no %q in\n%s", want, s.Text())
		}
	}
}

// What an observer is told, in order, and what it then knows.
func TestFollower(t *testing.T) {
	var f state.Follower
	if s := f.Now(now, skew); s.State != state.None {
		t.Errorf("at first %+v", s)
	}
	next := *held(0)
	next.ElectionNumber, next.LeaderID = 4, "b"
	for i, c := range []struct {
		entry *leaderelection.RaceEntry
		event string
		state string
		text  string
	}{
		{held(0), state.Elected, state.Led, "token 3: a leads, until 13:46:50.000Z"},
		{held(1), state.Extension, state.Led, "token 3: a extended until 13:46:50.000Z"},
		{nil, state.Lapse, state.Lapsed, "token 3: lapsed, a has not extended its term"},
		{held(2), state.Elected, state.Led, "token 3: a leads"},
		{vacant("b"), state.Vacancy, state.Vacant, "token 3: over, reserved for b until"},
		{&next, state.Elected, state.Led, "token 4: b leads"},
		{held(3), state.Elected, state.Led, "token 3: a leads"}, // of a store that was set back
	} {
		var e state.Event
		if c.entry == nil {
			e = f.Lapsed(held(1), now, skew)
		} else {
			e = f.Changed(c.entry, now, skew)
		}
		if e.Event != c.event || e.State.State != c.state || !strings.HasPrefix(e.Text(), "2026-09-21T13:46:40.000Z "+c.text) {
			t.Errorf("%d: %+v: %s", i, e, e.Text())
		}
	}
}

// An unsynchronized record is led once it was seen to change, for a term from then
// on, and lapsed a term and the allowance after that; before, it is held.
func TestFollowerUnsynchronized(t *testing.T) {
	var f state.Follower
	known := func(after time.Duration, want string, left float64) {
		t.Helper()
		if s := f.Now(now.Add(after), skew); s.State != want || s.Left != left || !s.TermExpiry.IsZero() {
			t.Errorf("after %v: %+v, want %s, %gs left", after, s, want, left)
		}
	}
	e := f.Changed(unsynchronized(5), now, skew)
	if e.Event != state.Elected || !strings.Contains(e.Text(), "held by a; its clock is not compared") {
		t.Errorf("%+v: %s", e, e.Text())
	}
	known(term+skew-1, state.Unknown, 0)
	known(term+skew, state.Lapsed, 0)
	e = f.Changed(unsynchronized(6), now, skew)
	if e.Event != state.Extension || !strings.HasSuffix(e.Text(), "a extended for 10s") {
		t.Errorf("%+v: %s", e, e.Text())
	}
	known(0, state.Led, 10)
	known(4*time.Second, state.Led, 6)
	known(term+skew-1, state.Led, 0)
	known(term+skew, state.Lapsed, 0)
	if got := f.LapseIn(now.Add(time.Second), 0); got != term/100+9*time.Second {
		t.Errorf("without a skew, a hundredth of the term is allowed for; got %v", got)
	}
	f.Lapsed(unsynchronized(6), now, skew)
	known(0, state.Lapsed, 0)
	if e = f.Changed(unsynchronized(7), now, skew); e.Event != state.Elected || !strings.HasSuffix(e.Text(), "token 3: a leads, for 10s") {
		t.Errorf("back after a lapse: %+v: %s", e, e.Text())
	}
	gone := vacant("b")
	gone.Unsynchronized = true
	if e = f.Changed(gone, now, skew); !strings.HasSuffix(e.Text(), "over, reserved for b, for a term of 10s") {
		t.Error(e.Text())
	}
	gone.Successor = ""
	if e = f.Changed(gone, now, skew); !strings.HasSuffix(e.Text(), "over, given up") {
		t.Error(e.Text())
	}
}

// So is a record whose term ends later than a right clock can have written.
func TestFollowerAhead(t *testing.T) {
	var f state.Follower
	known := func(after time.Duration, want string, left float64) {
		t.Helper()
		if s := f.Now(now.Add(after), skew); s.State != want || s.Left != left || !s.Since.IsZero() || strings.Contains(s.Text(), "since      about") {
			t.Errorf("after %v: %+v, want %s, %gs left:\n%s", after, s, want, left, s.Text())
		}
	}
	f.Changed(ahead(), now, skew)
	known(term+3*skew-1, state.Unknown, 0)
	known(term+3*skew, state.Lapsed, 0)
	next := ahead()
	next.Extension++
	f.Changed(next, now, skew)
	known(0, state.Led, 10)
	known(4*time.Second, state.Led, 6)
	known(term+3*skew, state.Lapsed, 0)
}

// What docs/record.md tells observers in other languages to call a record is what it is called
// here. (One look at a record whose clock is not compared, or is wrong, never tells that it has lapsed.)
func TestVectors(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "record", "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Judged []struct {
			Name, Record, State string
			Now, Skew           json.Number
		}
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors.Judged) < 15 {
		t.Fatalf("%d records are judged, %v", len(vectors.Judged), err)
	}
	for _, v := range vectors.Judged {
		e, err := record.Unmarshal("here", []byte(v.Record))
		if err != nil {
			t.Fatal(err)
		}
		now, err1 := v.Now.Int64()
		skew, err2 := v.Skew.Int64()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		want := v.State
		if e.Unsynchronized && !e.Vacant() || state.Ahead(e, time.Unix(0, now), time.Duration(skew)) {
			want = state.Unknown
		}
		if got := state.Of(e, time.Unix(0, now), time.Duration(skew), 0).State; got != want {
			t.Errorf("%s: it is %s, want %s", v.Name, got, want)
		}
	}
}
