//go:build !linux && !darwin

package lock

import (
	"context"
	"io/fs"
)

// Held is nothing here.
type Held struct{}

// Writers are nobody here.
type Writers struct {
	Mode fs.FileMode
	Of   fs.FileInfo
}

// Wait returns at once: no store of this system needs it.
func Wait(context.Context, string, Writers) (*Held, error) { return &Held{}, nil }

// Close does nothing.
func (*Held) Close() error { return nil }

// Still returns nil.
func (*Held) Still() error { return nil }
