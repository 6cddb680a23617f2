//go:build go1.25

package lehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// A handler that runs on for longer than DrainTimeout has the view that it was let in with, which is
// over, and its process does not lead again before it has returned.
func TestTheHandlersViewIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New(nil)
		ctx, cancel := context.WithCancel(t.Context())
		start := func(id string) *le.Campaign {
			c, err := le.Config{Decider: d.Handle(), LeaderID: id, MaxClockSkew: S, OnElected: func(ctx context.Context, view *le.TimeView) {
				if le.ViewFrom(ctx) != view {
					t.Error("OnElected's ctx has another view")
				}
			}, OnOusting: func(ctx context.Context) {
				if n := le.ViewFrom(ctx).ElectionNumber(); n == le.NoElections {
					t.Error("OnOusting's ctx has no view")
				}
			}}.Start(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		a := start("a")
		time.Sleep(time.Second)
		b := start("b")
		hand := func(to *le.Campaign, id string) {
			if err := le.Transfer(t.Context(), d.Handle(), id); err != nil {
				t.Fatal(err)
			}
			for !to.View().ValueInFuture() {
				time.Sleep(time.Second)
			}
		}
		called := false
		h := lehttp.RequireLeader(a, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			called = true
			view := le.ViewFrom(r.Context())
			first := view.ElectionNumber()
			if !view.ValueInFuture() || first != a.View().ElectionNumber() {
				t.Errorf("let in with token %d, and the campaign has %d", first, a.View().ElectionNumber())
			}
			hand(b, "b")
			if err := le.Transfer(t.Context(), d.Handle(), "a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if a.View().ValueInFuture() {
				t.Error("the process leads again, and a request of its first leadership runs")
			}
			if view := le.ViewFrom(r.Context()); view.ValueInFuture() || view.ElectionNumber() != first {
				t.Errorf("the handler was let in with token %d, and has %d: %v", first, view.ElectionNumber(), view.ValueInFuture())
			}
		}))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
		hand(a, "a")
		if now, first := a.View().ElectionNumber(), le.ElectionNumber(1); now <= first {
			t.Errorf("the campaign leads with %d after %d", now, first)
		}
		if !called || w.Code != http.StatusServiceUnavailable {
			t.Errorf("called: %v; %d %q", called, w.Code, w.Body)
		}
		cancel()
		<-a.Done()
		<-b.Done()
	})
}
