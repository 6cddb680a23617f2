package file

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/c8e606e4/leaderelection/deciders/internal/disk"
)

// lookAgain is how often a feed reads the file without notice: what kqueue tells
// of files within a directory is put together from looks at it, between which a
// rename can be missed.
const lookAgain = time.Second

// watcher is a watcher of the file in a directory.
type watcher struct {
	*fsnotify.Watcher
	dir, path string
	look      *time.Ticker
}

// newWatcher returns one of the file of this name in dir.
func newWatcher(dir, name string) (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		return nil, noWatch(err)
	} else if err != nil {
		return nil, disk.Explain(err)
	}
	if err := w.Add(dir); err != nil {
		return nil, errors.Join(disk.Explain(err), w.Close())
	}
	return &watcher{Watcher: w, dir: dir, path: filepath.Join(dir, name), look: time.NewTicker(lookAgain)}, nil
}

// Close ends the watch.
func (w *watcher) Close() error {
	w.look.Stop()
	return w.Watcher.Close()
}

// Wait returns nil when the file may have changed.
func (w *watcher) Wait(ctx context.Context) error {
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
				return gone(w.dir)
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
