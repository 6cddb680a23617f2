//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Changes implements leaderelection.ChangeFeed by watching the directory: the
// file itself is another one after each rename. States that follow each other
// faster than they are read are merged. It fails where the directory goes away,
// and where the file cannot be read.
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
		e, err := d.read(ctx) // after the watch began: nothing falls between
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

// watch is a watcher of the file's directory.
type watch struct {
	*fsnotify.Watcher
	dir, path string
	look      *time.Ticker // never ticks where notices are complete
}

func (d *Decider) watch() (*watch, error) {
	dir := filepath.Dir(d.path)
	if err := d.makePlaceToWatch(dir); err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		return nil, fmt.Errorf("%w: no more files, or no more watchers (Linux: raise fs.inotify.max_user_instances); polling needs none", err)
	} else if err != nil {
		return nil, explain(err)
	}
	if err := w.Add(dir); err != nil {
		return nil, errors.Join(explain(err), w.Close())
	}
	return &watch{Watcher: w, dir: dir, path: d.path, look: time.NewTicker(lookAgain)}, nil
}

// makePlaceToWatch creates the directory where it may, and leaves it alone where
// it is there: observers need not be able to write.
func (d *Decider) makePlaceToWatch(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return d.checkPlace()
	}
	return d.makePlace()
}

// Close ends the watch.
func (w *watch) Close() error {
	w.look.Stop()
	return w.Watcher.Close()
}

// wait returns nil when the file may have changed.
func (w *watch) wait(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.look.C:
			return nil
		case ev, open := <-w.Events:
			switch {
			case !open:
				return errors.New("the watcher was closed")
			case ev.Name == w.dir && ev.Op&(fsnotify.Remove|fsnotify.Rename) != 0:
				return fmt.Errorf("the directory %s was removed or renamed", w.dir)
			case ev.Name == w.path: // and not what else lies or happens there
				return nil
			}
		case err, open := <-w.Errors:
			switch {
			case !open:
				return errors.New("the watcher was closed")
			case errors.Is(err, fsnotify.ErrEventOverflow): // something was missed, so look
				return nil
			}
			return err
		}
	}
}
