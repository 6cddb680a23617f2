package objecttest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// Blind is an Object whose store's answers to a look have nothing that binds the
// version to the rest, and says why.
type Blind interface{ Blind() string }

// Whatever answers in place of the server, a write that did not happen is an error, and
// a write under an old token changes nothing.
func lies(t *testing.T, s *suite) {
	looks := func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
	writes := func(r *http.Request) bool { return !looks(r) }
	n := uint64(1)
	for _, lie := range httpfault.Lies() {
		liar := &httpfault.Liar{Next: s.wire}
		o := s.make(liar)
		for range 3 { // for replays, of looks and of writes
			n++
			if err := o.Put(t.Context(), fencetest.Orders(n), text(fencetest.Orders(n), "true")); err != nil {
				t.Fatal(err)
			}
			if a, ok := o.(Raiser); ok {
				n++
				if err := a.Raise(t.Context(), fencetest.Orders(n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := o.Put(t.Context(), fencetest.Orders(n-1), text(fencetest.Orders(n-1), "late")); !errors.Is(err, fence.ErrStale) {
			t.Fatal(err) // a look at what is there now, for replays
		}
		before, _, err := s.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, about := range map[string]func(*http.Request) bool{"all": nil, "writes": writes, "looks": looks} {
			for which, token := range map[string]fence.Token{"new": fencetest.Orders(n + 1), "old": fencetest.Orders(n - 1)} {
				if what == "looks" && which == "new" {
					continue // whose write may happen
				}
				if b, ok := o.(Blind); ok && what == "looks" && lie.Name == "OldAnswerNewestETag" && b.Blind() != "" {
					continue
				}
				liar.About = about
				liar.Tell(&lie)
				late := lie.Replay && which == "old" // a fence that is beyond it was raised to it, once
				lied(t, o, token, late, lie.Name+", about "+what+", under a token that is "+which)
				liar.Tell(nil)
				s.holds(t, before)
			}
		}
	}
}

// lied writes, and raises the fence. Some clients repeat what was cut off for as long
// as their ctx lasts.
func lied(t *testing.T, o Object, token fence.Token, late bool, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := o.Put(ctx, token, text(token, "lie")); err == nil {
		t.Errorf("%s: it is said to be written", what)
	}
	if a, ok := o.(Raiser); ok {
		if err := a.Raise(ctx, token); err == nil && !late {
			t.Errorf("%s: the fence is said to be raised", what)
		}
	}
}
