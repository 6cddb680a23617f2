package clocks

import (
	"syscall"
	"testing"
	"time"
)

func TestBoundOf(t *testing.T) {
	for _, c := range []struct {
		timex syscall.Timex
		want  time.Duration
	}{
		{syscall.Timex{Maxerror: 1500}, 1500 * time.Microsecond},
		{syscall.Timex{Maxerror: 0, Status: 1}, 0},
		{syscall.Timex{Maxerror: 1500, Status: staUnsync}, Unbounded},
		{syscall.Timex{Maxerror: 16_000_000, Status: staUnsync | 1}, Unbounded},
	} {
		if got := boundOf(&c.timex); got != c.want {
			t.Errorf("%+v is %v, want %v", c.timex, got, c.want)
		}
	}
}

// The kernel is asked, or says why it may not be.
func TestKernelBound(t *testing.T) {
	bound, err := Kernel().(Bounded).ErrorBound()
	if err == nil && bound < 0 {
		t.Errorf("bound %v", bound)
	}
	t.Logf("bound %v, %v", bound, err)
}

func BenchmarkKernelBound(b *testing.B) {
	c := KernelClock{}
	for b.Loop() {
		c.ErrorBound()
	}
}
