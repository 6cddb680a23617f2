package kubernetes

import (
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

// FuzzLease takes any answer of an API server for the Lease: what passes is this Lease, at a version that a
// write can be conditional on, and the record in it is one that can be kept again.
func FuzzLease(f *testing.F) {
	const meta = `"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": "7"`
	for _, s := range []string{
		`{` + meta + `}}`,
		`{` + meta + `}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": "2026-01-02T03:04:05.000000Z"}}`,
		`{` + meta + `}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": -1, "leaseTransitions": -2147483648}}`,
		`{` + meta + `, "annotations": {"` + recordKey + `": "{}", "` + writtenKey + `": "{}"}}, "spec": {"leaseTransitions": 2147483647}}`,
		`{` + meta + `, "annotations": {"` + recordKey + `": "{\"format\":1}", "` + writtenKey + `": "x"}}}`,
		`{"kind": "Status", "apiVersion": "v1"}`, `{}`, ``, `[]`, `null`,
	} {
		f.Add([]byte(s))
	}
	b := &backend{namespace: "n", name: "l", place: "k8s://n/l"}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := b.parse(data)
		if err != nil {
			return
		}
		if l.Name != "l" || l.Namespace != "n" || number(l.ResourceVersion) == 0 {
			t.Errorf("%q passes", data)
		}
		s, err := b.stored(l)
		if err != nil || s.None {
			return
		}
		e, err := record.Unmarshal(b.place, s.Data)
		_, ours := l.Annotations[recordKey]
		switch {
		case err != nil && ours:
			return // what the annotation has cannot be used
		case err != nil:
			t.Errorf("%q stands for a record that cannot be read: %v", data, err)
		case e.TermLength < 0:
			t.Errorf("%q has a term of %v", data, e.TermLength)
		case !ours && (e.ElectionNumber == leaderelection.NoElections || !e.Vacant() && (!e.Unsynchronized || e.Incarnation != ClientGo)):
			t.Errorf("%q stands for %+v", data, e)
		}
	})
}
