package clocks

import (
	"fmt"
	"syscall"
	"time"
)

// staUnsync is STA_UNSYNC of linux/timex.h: the clock is not synchronised.
const staUnsync = 0x40

// kernelBound asks adjtimex(2), and changes nothing.
func kernelBound() (time.Duration, error) {
	var t syscall.Timex
	if _, err := syscall.Adjtimex(&t); err != nil {
		return 0, fmt.Errorf("clocks: asking the kernel for its clock's error bound (adjtimex): %w", err)
	}
	return boundOf(&t), nil
}

func boundOf(t *syscall.Timex) time.Duration {
	if t.Status&staUnsync != 0 {
		return Unbounded
	}
	return time.Duration(t.Maxerror) * time.Microsecond
}
