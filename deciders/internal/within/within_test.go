//go:build go1.25

package within_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

func TestResult(t *testing.T) {
	calls := make(within.Calls, 1)
	failure := errors.New("failure")
	for range 3 {
		if n, err := within.Do(t.Context(), calls, func() (int, error) { return 7, failure }); n != 7 || err != failure {
			t.Errorf("%d, %v", n, err)
		}
	}
}

func TestEndedCtxCallsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := within.Do(ctx, make(within.Calls, 1), func() (int, error) {
		t.Error("called")
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type closer struct{ closed chan struct{} }

func (c closer) Close() error {
	close(c.closed)
	return nil
}

// A call that hangs is given up, keeps its place until it returns, and what it
// made in vain is closed.
func TestHangingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(within.Calls, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		hangs := make(chan struct{})
		made := closer{make(chan struct{})}
		begun := time.Now()
		_, err := within.Do(ctx, calls, func() (closer, error) {
			<-hangs
			return made, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		second, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = within.Do(second, calls, func() (int, error) {
			t.Error("there was a place for a second call")
			return 0, nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(hangs)
		<-made.closed
		if n, err := within.Do(t.Context(), calls, func() (int, error) { return 1, nil }); n != 1 || err != nil {
			t.Error(n, err)
		}
	})
}
