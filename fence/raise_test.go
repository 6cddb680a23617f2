//go:build go1.25

package fence_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// A request that only reads shuts nobody out, whatever token it has.
func TestSafeMethodsRaiseNothing(t *testing.T) {
	for name, options := range map[string]*fence.RequireOptions{"reads are free": nil, "reads need a token": {Reads: true}} {
		t.Run(name, func(t *testing.T) {
			guard := fence.NewGuard("orders", 5)
			h := fence.Require(guard, options)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace} {
				for _, token := range []string{"orders:9223372036854775807", "orders:18446744073709551615", "orders:6"} {
					r := httptest.NewRequest(method, "/", nil)
					r.Header.Set(fence.Header, token)
					h.ServeHTTP(httptest.NewRecorder(), r)
				}
			}
			r := httptest.NewRequest(http.MethodPut, "/", nil)
			r.Header.Set(fence.Header, "orders:5")
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK || guard.Greatest() != 5 {
				t.Errorf("the leader is told %d %s; the guard has seen %d", w.Code, w.Body, guard.Greatest())
			}
		})
	}
}

// Confirm is asked once for each greater token, and keeps out what it does not know.
func TestGuardConfirm(t *testing.T) {
	guard := fence.NewGuard("orders", 0)
	forged, asked := errors.New("forged"), 0
	type key struct{}
	guard.Confirm = func(ctx context.Context, token fence.Token) error {
		if asked++; ctx.Value(key{}) == nil && asked == 1 {
			t.Error("Confirm did not get the ctx of Check")
		}
		if token.Number > 7 {
			return forged
		}
		return nil
	}
	if err := guard.Check(context.WithValue(t.Context(), key{}, true), fencetest.Orders(8)); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Do(t.Context(), fencetest.Orders(1<<63-1), func(context.Context) error { t.Error("it acts"); return nil }); !errors.Is(err, forged) {
		t.Error(err)
	}
	if err := guard.Peek(t.Context(), fencetest.Orders(8)); err != nil || guard.Greatest() != 0 {
		t.Error(err, guard.Greatest())
	}
	for range 3 {
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil {
			t.Error(err)
		}
	}
	if err := guard.Check(t.Context(), fencetest.Orders(6)); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if asked != 3 {
		t.Errorf("Confirm was asked %d times, want 3", asked)
	}
	guard.Confirm = fence.ConfirmBy(nil)
	if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) || guard.Greatest() != 7 {
		t.Errorf("without a decider: %v, and %d is the greatest", err, guard.Greatest())
	}
}

// The election itself tells a genuine token from a forged one, at a bounded cost.
func TestConfirmBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		var reads atomic.Int32
		mine := d.Handle()
		broken := false
		mine.Inject(func(memory.Op) memory.Fault {
			reads.Add(1)
			if broken {
				return memory.Fault{Err: errors.New("the store is down")}
			}
			return memory.Fault{}
		})
		number := func(n uint64) {
			d.Replace(&le.RaceEntry{LeaderID: "a", ElectionNumber: le.ElectionNumber(n), TermLength: time.Second, TermExpiry: time.Now()})
		}
		number(7)
		guard := fence.NewGuard("orders", 0)
		guard.Confirm = fence.ConfirmBy(mine)
		var wg sync.WaitGroup
		for n := range uint64(100) {
			wg.Go(func() {
				if err := guard.Check(t.Context(), fencetest.Orders(1000+n)); err == nil {
					t.Errorf("%d is admitted", 1000+n)
				}
			})
		}
		wg.Wait()
		if err := guard.Check(t.Context(), fencetest.Orders(7)); err != nil || reads.Load() != 1 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
		number(8)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("within a second of the last read: %v", err)
		}
		time.Sleep(time.Second)
		if err := guard.Check(t.Context(), fencetest.Orders(8)); err != nil || reads.Load() != 2 {
			t.Errorf("%v, after %d reads", err, reads.Load())
		}
		time.Sleep(time.Second)
		broken = true
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPut, "/", nil)
		r.Header.Set(fence.Header, "orders:9")
		fence.Require(guard, nil)(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || guard.Greatest() != 8 {
			t.Errorf("with the store down: %d %s, seen %d", w.Code, w.Body, guard.Greatest())
		}
	})
}
