package cli

import (
	"testing"

	"github.com/c8e606e4/leaderelection/clocks"
)

// A candidate is given up for stuck when two looks in a row find its lease over, and itself
// the leader.
func TestStuck(t *testing.T) {
	var s supervisor
	for i, c := range []struct{ overdue, alive bool }{{false, true}, {true, true}, {false, true}, {true, true}, {true, false}, {true, false}, {false, true}} {
		if got := s.look(c.overdue); got != c.alive {
			t.Errorf("look %d: alive %v, want %v", i, got, c.alive)
		}
	}
}

// The kernel's clock is gone by if that is asked for, and only then.
func TestKernelClock(t *testing.T) {
	a, _, code, errOut := probe(t, nil, "store = file:x\n")
	if code != 0 {
		t.Fatal(errOut)
	}
	if cfg, err := a.candidate(); err != nil || cfg.Clock != nil {
		t.Errorf("the clock is %T, %v", cfg.Clock, err)
	}
	_, told := clocks.KernelClock{}.ErrorBound()
	a, _, code, errOut = probe(t, nil, "store = file:x\n", "--clocks", "kernel")
	if told != nil { // this kernel may not be asked
		if code != exitUsage {
			t.Errorf("exit code %d, %s", code, errOut)
		}
		return
	}
	if cfg, err := a.candidate(); err != nil || cfg.Clock != clocks.Kernel() {
		t.Errorf("the clock is %T, %v; %s", cfg.Clock, err, errOut)
	}
}
