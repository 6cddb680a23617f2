package runner

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// It stays out for as long as it is told, and no longer.
func TestAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Aside
		if err := a.Healthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		why := errors.New("for a test")
		a.For(time.Minute, why)
		time.Sleep(time.Minute - 1)
		if err := a.Healthy(t.Context()); !errors.Is(err, ErrStandingDown) || !errors.Is(err, why) {
			t.Errorf("just before: %v", err)
		}
		time.Sleep(time.Nanosecond)
		if err := a.Healthy(t.Context()); err != nil {
			t.Errorf("after a minute: %v", err)
		}
	})
}
