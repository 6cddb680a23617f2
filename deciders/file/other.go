//go:build !linux && !darwin

package file

import (
	"context"
	"iter"
	"runtime"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

var errUnsupported = store.Wrong("elections in a file work on Linux and macOS, not on %s: use another store", runtime.GOOS)

// ReadCurrent fails: this system is not supported.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return nil, d.election.Failed(ctx, store.Reading, errUnsupported)
}

// WriteEntry fails: this system is not supported.
func (d *Decider) WriteEntry(ctx context.Context, _ *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return nil, d.election.Failed(ctx, store.Writing, errUnsupported)
}

// Changes yields one error: this system is not supported.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, func(context.Context, func(*leaderelection.RaceEntry) bool) error { return errUnsupported })
}

// Load implements store.Store.
func (b *backend) Load(context.Context) (s store.Stored[token], err error) { return s, errUnsupported }

// Swap implements store.Store.
func (b *backend) Swap(context.Context, token, []byte, *leaderelection.RaceEntry) (t token, err error) {
	return t, errUnsupported
}

// Judge implements store.Store.
func (b *backend) Judge(error) store.Verdict { return store.Verdict{} }
