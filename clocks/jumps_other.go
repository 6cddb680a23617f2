//go:build !linux

package clocks

import (
	"errors"
	"fmt"
	"runtime"
)

var systemJumps noJumps

type noJumps struct{}

func (noJumps) add(func()) (stop func(), err error) {
	return nil, fmt.Errorf("clocks: nothing tells of jumps of the clock on %s: %w", runtime.GOOS, errors.ErrUnsupported)
}
