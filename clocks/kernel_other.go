//go:build !linux

package clocks

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

func kernelBound() (time.Duration, error) {
	return 0, fmt.Errorf("clocks: the kernel's error bound cannot be asked for on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
