//go:build linux || darwin

package file

import (
	"context"
	"iter"
	"os"
	"path/filepath"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file/internal/watch"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Changes implements leaderelection.ChangeFeed. It watches the directory for files that are renamed
// or removed, since each write replaces the file. It shows a record as soon as it is in its place,
// which may be before it is on the disk. It merges states that follow each other faster than it
// reads them. It fails if the directory goes away, or if it cannot read the file.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	w, err := within.Do(ctx, d.b.reading, d.b.watch)
	if err != nil {
		return err
	}
	defer w.Close()
	var last *token
	for {
		// After the watch began: nothing falls between.
		s, err := d.b.read(ctx, func(content) error { return nil })
		if err != nil {
			return err
		}
		if last == nil || !s.At.same(*last) {
			last = &s.At
			e, err := d.election.Entry(s)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

// watch is a watcher of the file.
func (b *backend) watch() (*watch.Watch, error) {
	dir := filepath.Dir(b.path)
	if err := b.makePlaceToWatch(dir); err != nil {
		return nil, err
	}
	return watch.New(dir, filepath.Base(b.path))
}

// makePlaceToWatch creates the directory where it may, and leaves it alone if
// it is there: observers need not be able to write.
func (b *backend) makePlaceToWatch(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return b.checkPlace()
	}
	return b.makePlace()
}
