package record_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

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
		if err != nil || !same(got, e) {
			t.Fatalf("%+v stored as %s, read as %+v, %v", e, data, got, err)
		}
		if again, err := record.Marshal(got); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("stored as %s, then as %s, %v", data, again, err)
		}
	})
}
