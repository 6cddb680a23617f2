//go:build go1.25

package clocks_test

import (
	"testing"
	"testing/synctest"

	"github.com/c8e606e4/leaderelection/clocks"
)

// Inside a bubble nothing is to wait for what comes from outside of it.
func TestNoJumpsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []clocks.Clock{clocks.System(), clocks.Kernel()} {
			if stop, err := c.(clocks.JumpNotifier).NotifyJump(func() { t.Error("called") }); err == nil || stop != nil {
				t.Errorf("%T: a bubble's clock tells of jumps", c)
			}
		}
	})
}

// A clock that tests move says nothing about its jumps: who sleeps by it looks.
func TestOffsetTellsOfNoJumps(t *testing.T) {
	var c clocks.Clock = clocks.NewOffset(nil, 0)
	if _, ok := c.(clocks.JumpNotifier); ok {
		t.Error("an Offset is a JumpNotifier, though nobody tells of a Set")
	}
}
