package shard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"testing"

	"github.com/c8e606e4/leaderelection"
)

// FuzzAssignment reads assignments of any bytes. What can be read is written, and read, as the same.
func FuzzAssignment(f *testing.F) {
	full := &assignment{
		version: 7, id: "id", shards: Named("a", "b"), retired: 9, pins: map[string]string{"b": "m"}, drained: []string{"n"},
		sessions: []session{{SessionID: SessionID{0, 3}, Member: "m"}, {SessionID: SessionID{4, 1}, Member: "n"}},
		places:   []placed{{0, 5, true}, {none, 1, false}},
	}
	for _, a := range []*assignment{full, {version: 1, id: "id", shards: Numbered(3000), places: make([]placed, 3000)}} {
		for i := range a.places {
			if len(a.sessions) == 0 {
				a.places[i].session = none
			}
		}
		e, err := a.entry(maxText)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.ConnectionParams, true)
	}
	f.Add([]byte(`{"form":"shards/9"}`), true)
	f.Add([]byte{0x1f, 0x8b, 8}, true)
	f.Add([]byte(`{"form":"`+assignmentForm+`","numbered":1,"places":[[-1,0,1]]}`), false)
	for _, place := range []string{"[]", "[1]", "[0,1]", "[-1,-1]", "[-1,9223372036854775808]", "[-1,0,1,1]"} {
		f.Add([]byte(`{"form":"`+assignmentForm+`","numbered":1,"places":[`+place+`]}`), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, packed bool) {
		if !packed { // so that the fuzzer need not learn gzip
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(text)
			_ = z.Close()
			text = b.Bytes()
		}
		a, err := readAssignment(&leaderelection.RaceEntry{ElectionNumber: 7, Incarnation: "id", ConnectionParams: text})
		if err != nil {
			if !errors.Is(err, ErrForeign) || a != nil {
				t.Fatalf("%v, %v", a, err)
			}
			return
		}
		for _, p := range a.places {
			if p.session < none || p.session >= len(a.sessions) {
				t.Fatalf("of session %d of %d", p.session, len(a.sessions))
			}
		}
		if a.public() == nil || !a.clone().same(a) {
			t.Fatalf("%+v is not the same as its copy", a)
		}
		e, err := a.entry(maxText)
		if err != nil {
			t.Fatalf("it was read, and cannot be written: %v", err)
		}
		again, err := readAssignment(e)
		if err != nil {
			t.Fatalf("it was written, and cannot be read: %v", err)
		}
		if !again.same(a) {
			t.Fatalf("%+v is read again as %+v", a, again)
		}
	})
}

// FuzzSeat reads seats of any bytes.
func FuzzSeat(f *testing.F) {
	m := &Member{cfg: Config{MemberID: "m", Zone: "z", Capacity: 3}.withDefaults()}
	info := m.info()
	info.LetGo, info.Failed = map[string]uint64{"a": 5}, map[string]string{"a": "why"}
	text, err := json.Marshal(info)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"form":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := readSeat(&leaderelection.RaceEntry{LeaderID: "m#1", ElectionNumber: 1, ConnectionParams: text})
		if err != nil && !errors.Is(err, ErrForeign) || err == nil && (s.Member == "" || s.Weight < 1 || s.Capacity < 0) {
			t.Fatalf("%+v, %v", s, err)
		}
	})
}
