package record

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"github.com/c8e606e4/leaderelection"
)

// byJSON is what encoding/json makes of e.
func byJSON(t testing.TB, e *leaderelection.RaceEntry) []byte {
	t.Helper()
	f := entryFields{
		Format: Format, LeaderID: e.LeaderID, ConnectionParams: e.ConnectionParams, TermExpiry: e.TermExpiry.UTC(), TermLength: e.TermLength.String(),
		ElectionNumber: uint64(e.ElectionNumber), Extension: e.Extension, Incarnation: e.Incarnation, Successor: e.Successor, Unsynchronized: e.Unsynchronized, HandedBack: e.HandedBack,
	}
	for i := range e.HostPort {
		f.HostPort = append(f.HostPort, &e.HostPort[i])
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&f); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func TestFormatText(t *testing.T) {
	if format != strconv.Itoa(Format) {
		t.Errorf("%q is not %d", format, Format)
	}
}

// What is read quickly is read as the strict reader would, and what is written
// quickly is what encoding/json would write.
func FuzzQuickIsStrict(f *testing.F) {
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","host_port":["b:1","c:2"],"connection_params":"AAEC","term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","successor":"s"}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","unsynchronized":true}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","successor":"s","unsynchronized":true,"handed_back":true}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","unsynchronized":false}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"\u2028<&>\"\\\n","term_expiry":"0000-01-01T00:00:00Z","term_length":"0s","election_number":0,"extension":18446744073709551615,"incarnation":"ä"}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","host_port":[],"connection_params":"","term_expiry":"2026-11-21T11:24:05+01:00","term_length":"1h","election_number":07,"extension":-1,"incarnation":""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Unmarshal("here", data)
		if quick := own(data); quick != nil {
			strict, serr := strictly(data)
			if serr != nil || !reflect.DeepEqual(quick, strict) {
				t.Fatalf("%q\nquickly  %+v\nstrictly %+v, %v", data, quick, strict, serr)
			}
		}
		if err != nil {
			return
		}
		if quick, slow := appendEntry(nil, e), byJSON(t, e); e.Extra == nil && !bytes.Equal(quick, slow) {
			t.Fatalf("%+v\nquickly %s\nslowly  %s", e, quick, slow)
		}
	})
}
