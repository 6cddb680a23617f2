//go:build !linux

package clocks

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

var systemJumps noJumps

type noJumps struct{}

func (noJumps) add(func()) (stop func(), err error) {
	return nil, fmt.Errorf("clocks: nothing tells of jumps of the clock on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}

func kernelBound() (time.Duration, error) {
	return 0, fmt.Errorf("clocks: the kernel's error bound cannot be asked for on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
