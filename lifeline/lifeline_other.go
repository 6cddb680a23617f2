//go:build !linux

package lifeline

import (
	"fmt"
	"os"
	"runtime"
)

// Lifeline is this process's locked file in a directory. This system has no lifelines.
type Lifeline struct{}

// Dir returns an error that wraps ErrUnsupported: lifelines are for Linux.
func Dir(path string) (*Lifeline, error) {
	return nil, fmt.Errorf("%w: %s: lifelines need Linux, and this is %s", ErrUnsupported, path, runtime.GOOS)
}

// String returns the directory.
func (*Lifeline) String() string { return "" }

// File returns the locked file.
func (*Lifeline) File() *os.File { return nil }

// Live gives this process's file a name.
func (*Lifeline) Live(name string) error { return ErrUnsupported }

// End removes a name from this process's file.
func (*Lifeline) End(name string) error { return nil }

// Close ends the lifeline.
func (*Lifeline) Close() error { return nil }

// Dead reports whether the death of the incarnation name is proved.
func (*Lifeline) Dead(name string) bool { return false }

// Bury removes the name of an incarnation that is proved dead.
func (*Lifeline) Bury(name string) error { return nil }

// OnDeath calls tell when the death of the incarnation name is proved.
func (*Lifeline) OnDeath(name string, tell func()) (stop func()) { return func() {} }
