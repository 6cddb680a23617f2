//go:build linux || darwin

package file

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Changes implements leaderelection.ChangeFeed by watching the directory for files
// that are renamed or removed: the file itself is another one after each write. It
// tells of a record as soon as that is in its place, which may be before it is on the
// disk. States that follow each other faster than they are read are merged. It fails
// if the directory goes away, and if the file cannot be read.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return func(yield func(*leaderelection.RaceEntry, error) bool) {
		if ctx.Err() != nil {
			return
		}
		if err := d.follow(ctx, yield); err != nil && ctx.Err() == nil {
			yield(nil, d.failed("watching", err))
		}
	}
}

// follow returns nil where the loop was left or ctx has ended.
func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry, error) bool) error {
	w, err := within.Do(ctx, d.reading, d.watch)
	if err != nil {
		return err
	}
	defer w.Close()
	var last *token
	for {
		// After the watch began: nothing falls between.
		e, err := d.read(ctx, func(content) error { return nil })
		if err != nil {
			return err
		}
		if t := e.Token.(*token); last == nil || !t.same(last) {
			last = t
			if !yield(e, nil) {
				return nil
			}
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// watch is a watcher of the file.
func (d *Decider) watch() (*watch, error) {
	dir := filepath.Dir(d.path)
	if err := d.makePlaceToWatch(dir); err != nil {
		return nil, err
	}
	return newWatch(dir, filepath.Base(d.path))
}

// makePlaceToWatch creates the directory where it may, and leaves it alone where
// it is there: observers need not be able to write.
func (d *Decider) makePlaceToWatch(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return d.checkPlace()
	}
	return d.makePlace()
}

// noWatch is the error of a user who has as many watchers as the system allows.
func noWatch(err error) error {
	return fmt.Errorf("%w: no more files, or no more watchers (Linux: raise fs.inotify.max_user_instances); polling needs none", err)
}

// gone is the error of a watcher whose directory is not there any more.
func gone(dir string) error { return fmt.Errorf("the directory %s was removed or renamed", dir) }
