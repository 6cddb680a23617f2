package record

import (
	"reflect"
	"testing"
)

// What is taken for this package's own writing is read as the strict reader would.
func FuzzQuickIsStrict(f *testing.F) {
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","host_port":["b:1","c:2"],"connection_params":"AAEC","term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","successor":"s"}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","unsynchronized":true}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","successor":"s","unsynchronized":true,"handed_back":true}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"15s","election_number":7,"extension":12,"incarnation":"i","unsynchronized":false}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"\u2028<&>\"\\\n","term_expiry":"0000-01-01T00:00:00Z","term_length":"0s","election_number":0,"extension":18446744073709551615,"incarnation":"ä"}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","host_port":[],"connection_params":"","term_expiry":"2026-11-21T11:24:05+01:00","term_length":"1h","election_number":07,"extension":-1,"incarnation":""}`))
	f.Add([]byte(`{"leaderelection":1,"leader_id":"a","term_expiry":"2026-11-21T11:24:05Z","term_length":"","election_number":7,"extension":12,"incarnation":"i"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if quick := own(data); quick != nil {
			strict, err := strictly(data)
			if err != nil || !reflect.DeepEqual(quick, strict) {
				t.Fatalf("%q\nquickly  %+v\nstrictly %+v, %v", data, quick, strict, err)
			}
		}
	})
}
