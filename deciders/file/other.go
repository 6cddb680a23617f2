//go:build !linux && !darwin

package file

import (
	"context"
	"iter"
	"runtime"

	"github.com/c8e606e4/leaderelection"
)

func networkFS(string) (kind string, err error) { return "", nil }

func syncDir(string) error { return nil }

func (d *Decider) unsupported(doing string) error {
	return d.failed(doing, permanent("elections in a file work on Linux and macOS, not on %s: use another store", runtime.GOOS))
}

// ReadCurrent fails: this system is not supported.
func (d *Decider) ReadCurrent(context.Context) (*leaderelection.RaceEntry, error) {
	return nil, d.unsupported("reading")
}

// WriteEntry fails: this system is not supported.
func (d *Decider) WriteEntry(context.Context, *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return nil, d.unsupported("writing")
}

// Changes yields one error: this system is not supported.
func (d *Decider) Changes(context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) { yield(nil, d.unsupported("watching")) }
}
