package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

func sample() *leaderelection.RaceEntry {
	return &leaderelection.RaceEntry{
		LeaderID:         "web-1",
		HostPort:         []string{"10.0.0.1:443", "[fd00::1]:443"},
		ConnectionParams: []byte{0, 1, 2, 0xff},
		TermExpiry:       time.Date(2026, 11, 21, 11, 24, 5, 123456789, time.UTC),
		TermLength:       15 * time.Second,
		ElectionNumber:   7,
		Extension:        12,
		Incarnation:      "6b1f0c",
		Successor:        "web-2",
	}
}

const sampleJSON = `{"leaderelection":1,"leader_id":"web-1","host_port":["10.0.0.1:443","[fd00::1]:443"],` +
	`"connection_params":"AAEC/w==","term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s",` +
	`"election_number":7,"extension":12,"incarnation":"6b1f0c","successor":"web-2"}`

// What other languages refuse as well is in the vectors.
func TestUnmarshalRefuses(t *testing.T) {
	for says, data := range map[string]string{
		"not one whole JSON object (no '{' at its beginning), but begins \"[1]\"; it is not a record of this library": "[1]",
		"not one whole JSON object":  sampleJSON[:len(sampleJSON)-1],
		"1 bytes follow":             sampleJSON + "}",
		"year 10000":                 strings.Replace(sampleJSON, `2026-11-21T11:24:05.123456789Z`, `9999-12-31T23:59:59-01:00`, 1),
		`"hold": time: missing unit`: strings.Replace(sampleJSON, `"extension"`, `"hold":"5","extension"`, 1),
		"bytes":                      strings.Replace(sampleJSON, `6b1f0c`, strings.Repeat("x", record.MaxSize), 1),
		"max depth":                  strings.Repeat(`{"a":`, 20000),
	} {
		t.Run(says, func(t *testing.T) { refuses(t, []byte(data), says) })
	}
}

// refuses fails the test unless data are refused for good, for the reason that is told along with the place and one
// piece of advice.
func refuses(t *testing.T, data []byte, why string) {
	t.Helper()
	e, err := record.Unmarshal("bucket b, object o", data)
	if e != nil || !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "bucket b, object o") {
		t.Fatalf("%+v, %v, want an ErrPermanent that says %q", e, err, why)
	}
	advice := 0
	for _, one := range []string{"replace it by Reset", "not a record of this library", "upgrade this program"} {
		advice += strings.Count(err.Error(), one)
	}
	if advice != 1 || len(err.Error()) > 500 {
		t.Errorf("%q gives %d pieces of advice in %d bytes", err, advice, len(err.Error()))
	}
}

func TestMarshalRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(e *leaderelection.RaceEntry)
		says   string
	}{
		"id":          {func(e *leaderelection.RaceEntry) { e.LeaderID = "\xff" }, `"leader_id"`},
		"nobody's id": {func(e *leaderelection.RaceEntry) { e.LeaderID = leaderelection.AnySuccessor }, `"leader_id"`},
		"incarnation": {func(e *leaderelection.RaceEntry) { e.Incarnation = "\xc3" }, `"incarnation"`},
		"successor":   {func(e *leaderelection.RaceEntry) { e.Successor = "\xed\xa0\x80" }, `"successor"`},
		"address":     {func(e *leaderelection.RaceEntry) { e.HostPort[1] = "\xff" }, "element 1"},
		"hold":        {func(e *leaderelection.RaceEntry) { e.Hold = -1 }, `"hold" is negative`},
		"term":        {func(e *leaderelection.RaceEntry) { e.TermLength = -1 }, "negative"},
		"year -1":     {func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }, "year -1"},
		"year 10000":  {func(e *leaderelection.RaceEntry) { e.TermExpiry = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "year 10000"},
		"number":      {func(e *leaderelection.RaceEntry) { e.ElectionNumber = 1 << 63 }, "past the end"},
		"extension":   {func(e *leaderelection.RaceEntry) { e.Extension = 1 << 63 }, "past the end"},
		"known":       {func(e *leaderelection.RaceEntry) { e.Extra = map[string]string{"successor": `"b"`} }, `"successor" is known`},
		"no JSON":     {func(e *leaderelection.RaceEntry) { e.Extra = map[string]string{"x": `1,"y":2`} }, `"x" is not JSON`},
		"too large":   {func(e *leaderelection.RaceEntry) { e.ConnectionParams = make([]byte, record.MaxSize) }, "ConnectionParams"},
		"too long":    {func(e *leaderelection.RaceEntry) { e.Successor = strings.Repeat("x", record.MaxSize) }, "are allowed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := sample()
			c.change(e)
			data, err := record.Marshal(e)
			if data != nil || !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("Marshal = %d bytes, %v; want an ErrPermanent that says %q", len(data), err, c.says)
			}
			if check := record.Check(e); check == nil || check.Error() != err.Error() {
				t.Errorf("Check says %v, Marshal %v", check, err)
			}
		})
	}
	if data, err := record.Marshal(nil); data != nil || !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Marshal(nil) = %q, %v", data, err)
	}
}

// same compares what is stored; a nil slice and an empty one are the same.
func same(a, b *leaderelection.RaceEntry) bool {
	if len(a.HostPort) != len(b.HostPort) {
		return false
	}
	for i := range a.HostPort {
		if a.HostPort[i] != b.HostPort[i] {
			return false
		}
	}
	return a.LeaderID == b.LeaderID && bytes.Equal(a.ConnectionParams, b.ConnectionParams) &&
		a.TermExpiry.Equal(b.TermExpiry) && a.TermLength == b.TermLength && a.Compare(b) == 0 &&
		a.Incarnation == b.Incarnation && a.Successor == b.Successor && a.Unsynchronized == b.Unsynchronized &&
		a.Hold == b.Hold && a.Priority == b.Priority
}

// Reset may overwrite only data that may be left of a record.
func TestForeign(t *testing.T) {
	for data, foreign := range map[string]bool{
		"":                                false,
		"\x00\x00\x00":                    false,
		" \n":                             false,
		"{":                               false,
		`{"leader`:                        false,
		"{\"lead\x00\x00\x00":             false,
		`{"leaderelection":1,"leader`:     false,
		`{"leaderelection":2}`:            false,
		`{"name":"package"}`:              true,
		`{"leader":"a"}`:                  true,
		"root:x:0:0:root:/root:/bin/sh\n": true,
		"\xff\xfe":                        true,
		"[1]":                             true,
	} {
		if _, err := record.Unmarshal("here", []byte(data)); errors.Is(err, record.ErrForeign) != foreign || !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("%q: %v, want foreign %v", data, err, foreign)
		}
	}
}

// Whatever is read either is refused as permanent or can be stored and read
// again as it was.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(sampleJSON))
	f.Add([]byte(sampleJSON[:60]))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"\ud800","term_expiry":"0000-01-01T00:00:00Z","term_length":"1.0000000001h","election_number":0,"extension":0,"incarnation":""}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":null}`))
	f.Add([]byte(`{"":1,"":2}`))
	f.Add([]byte(`[[[[`))
	f.Add([]byte(sampleJSON + "0"))
	f.Add([]byte("\xff"))
	f.Add([]byte(`{{`))
	f.Add([]byte(`{"leaderelection"`))                                                       // the end comes within a field
	f.Add([]byte(`{"leaderelection":1,"leader_id":"","term_expiry":"0000-01-01T0:00:00Z"}`)) // package time reads such an hour
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := record.Unmarshal("p", data)
		if err != nil {
			if e != nil || !errors.Is(err, leaderelection.ErrPermanent) {
				t.Fatalf("%+v, %v", e, err)
			}
			return
		}
		stored, err := record.Marshal(e)
		if err != nil {
			t.Fatalf("%s was read as %+v, which cannot be stored: %v", data, e, err)
		}
		if again, err := record.Unmarshal("p", stored); err != nil || !same(again, e) {
			t.Fatalf("%s was read as %+v, stored as %s, and read as %+v, %v", data, e, stored, again, err)
		}
	})
}

// Whatever Marshal stores is read back as it was.
func FuzzMarshal(f *testing.F) {
	f.Add("a", "h:1", []byte{1}, int64(1), int64(2), int64(3), uint64(4), uint64(5), "i", "*")
	f.Add("\xff", "", []byte(nil), int64(-1<<62), int64(-5), int64(-1), uint64(1<<63), uint64(0), "\x00", "\u2028")
	f.Add("a", "\xff", []byte{1}, int64(1), int64(2), int64(3), uint64(4), uint64(5), "i", "*")
	f.Add("a", "h:1", []byte{1}, int64(1), int64(2), int64(-3), uint64(4), uint64(5), "i", "*")
	f.Add("a", "h:1", []byte{1}, int64(1), int64(2), int64(3), uint64(1<<63), uint64(5), "i", "*")
	f.Add("a", "h:1", []byte{1}, int64(-1<<62), int64(2), int64(3), uint64(4), uint64(5), "i", "*")
	f.Add("", "<&>", []byte("x"), int64(253402300800), int64(999999999), int64(1<<62+1), uint64(0), uint64(0), "", "")
	f.Add("Zoë <&> 選挙 🗳 \u2028\ufffd\"\\\n\x00", "", bytes.Repeat([]byte{0xfe}, 100<<10), int64(-62167219200), int64(0), int64(math.MaxInt64), uint64(leaderelection.MaxElectionNumber), uint64(math.MaxInt64), "", "")
	f.Add("", "", []byte{}, int64(253402300799), int64(1), int64(123456700), uint64(1<<53+1), uint64(1), "i", "") // the last year
	f.Fuzz(func(t *testing.T, id, hp string, params []byte, sec, ns, length int64, number, ext uint64, inc, succ string) {
		e := &leaderelection.RaceEntry{
			LeaderID: id, HostPort: []string{hp, id}, ConnectionParams: params,
			TermExpiry: time.Unix(sec, ns), TermLength: time.Duration(length),
			ElectionNumber: leaderelection.ElectionNumber(number), Extension: ext, Incarnation: inc, Successor: succ,
		}
		data, err := record.Marshal(e)
		if err != nil {
			if !errors.Is(err, leaderelection.ErrPermanent) {
				t.Fatal(err)
			}
			return
		}
		got, err := record.Unmarshal("p", data)
		if err != nil || !same(got, e) || got.TermExpiry.Location() != time.UTC {
			t.Fatalf("%+v stored as %s, read as %+v, %v", e, data, got, err)
		}
		if again, err := record.Marshal(got); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("stored as %s, then as %s, %v", data, again, err)
		}
	})
}

// What a decider keeps, and what it makes of what it finds.
func Example() {
	entry := &leaderelection.RaceEntry{
		LeaderID:       "web-1",
		HostPort:       []string{"10.0.0.1:443"},
		TermExpiry:     time.Date(2026, 11, 21, 11, 24, 5, 0, time.UTC),
		TermLength:     15 * time.Second,
		ElectionNumber: 7,
		Extension:      12,
		Incarnation:    "6b1f0c",
	}
	data, err := record.Marshal(entry)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(data))

	found, err := record.Unmarshal("bucket elections, object web", data)
	if err != nil {
		fmt.Println(err)
		return
	}
	// The decider now sets found.Token to the version of what it read.
	fmt.Println(found.LeaderID, "leads until", found.TermExpiry, "with token", found.ElectionNumber)
	// Output:
	// {"leaderelection":1,"leader_id":"web-1","host_port":["10.0.0.1:443"],"term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"6b1f0c"}
	// web-1 leads until 2026-11-21 11:24:05 +0000 UTC with token 7
}

// A newer version of the library has written two fields that this one does not know. One of
// them an older candidate may go on without: it hands it on. The other it may not miss.
func Example_upgrade() {
	const before = `{"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s",` +
		`"election_number":7,"extension":13,"incarnation":"6b1f0c"`

	e, err := record.Unmarshal("table elections, row web", []byte(before+`,"zone":"eu"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Extension++
	data, err := record.Marshal(e)
	fmt.Println(string(data), err)

	_, err = record.Unmarshal("table elections, row web", []byte(before+`,"quorum":3,"must_understand":["quorum"]}`))
	fmt.Println(err)
	// Output:
	// {"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":14,"incarnation":"6b1f0c","zone":"eu"} <nil>
	// leaderelection: the record at table elections, row web cannot be used: field "quorum" must be understood, and is unknown; a newer version of the library has written it: upgrade this program: leaderelection: no retry can help
}
