package shard

import "testing"

// Zero values answer, and own nothing.
func TestZeroValues(t *testing.T) {
	for _, a := range []*Assignment{nil, {}} {
		if owner, is := a.Owner("1"); a.Version() != 0 || a.Len() != 0 || a.Of() != 0 || is || owner.Member != "" || len(a.Members())+len(a.Pins())+len(a.Drained())+len(a.Failures("1")) != 0 {
			t.Errorf("%+v", a)
		}
		if unowned, moving, failing := a.Totals(); unowned+moving+failing != 0 {
			t.Errorf("%d unowned, %d moving, %d failing", unowned, moving, failing)
		}
	}
	var o Owned
	if o.ValueInFuture() || !o.Get().IsZero() || o.ElectionNumber() != 0 || o.Name() != "" || o.Context().Err() == nil || o.Clock() == nil || o.Of() != 0 {
		t.Errorf("%+v", o.Name())
	}
}
