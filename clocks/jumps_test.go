//go:build go1.25

package clocks_test

import (
	"testing"
	"testing/synctest"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Inside a bubble no clock jumps, and nothing is to wait for what comes from outside of it.
func TestNoJumpsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []clocks.Clock{clocks.System(), clocks.Kernel()} {
			stop, err := clocks.NotifyJump(c, func() { t.Error("called") })
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
			synctest.Wait() // the bubble has to end, too
			stop()
			stop()
		}
	})
}

// A clock that says nothing about its jumps is looked at: one that tests move, and one that
// is built around the system's, whose jumps are not its own.
func TestTellsOfNoJumps(t *testing.T) {
	for _, c := range []clocks.Clock{clocks.NewOffset(nil, 0), struct{ clocks.SystemClock }{}, struct{ clocks.KernelClock }{}} {
		if stop, err := clocks.NotifyJump(c, func() { t.Error("called") }); err == nil || stop != nil {
			t.Errorf("%T tells of jumps", c)
		}
	}
}
