//go:build go1.25

package sql_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// A driver that hangs, and ignores its ctx, keeps nobody longer than that, and no more
// than so many goroutines.
func TestHangingDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		goOn := make(chan struct{})
		var hang atomic.Bool
		s.before = func(string) error {
			if hang.Load() {
				<-goOn
			}
			return nil
		}
		d := s.decider(t, nil)
		token := feedtest.Write(t, d, 1, nil)
		hang.Store(true)
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			var err error
			if i%2 == 0 {
				_, err = d.WriteEntry(ctx, feedtest.State(2, token))
			} else {
				_, err = d.ReadCurrent(ctx)
			}
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if n := s.count(""); n > 17 {
			t.Errorf("%d statements are under way at once", n)
		}
		hang.Store(false)
		close(goOn)
		synctest.Wait()
		// Of those that were given up one has landed by now, and counts when it is made sure of.
		feedtest.Reads(t, d, 2)
	})
}
