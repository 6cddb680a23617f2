package file

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/disk"
)

// watcher is an inotify instance that watches the file in a directory. The library for it,
// fsnotify, cannot be told what to watch for: it would wake a candidate for each write to
// each file that lies there.
type watcher struct {
	dir, name string
	notices   *os.File
	buf       [4096]byte // 14 notices, or more if their names are short
}

// A write of this package is a rename. Others who write to files of theirs, however
// often, cause none of these.
const (
	replaced = syscall.IN_MOVED_TO | syscall.IN_DELETE
	goneAway = syscall.IN_DELETE_SELF | syscall.IN_MOVE_SELF
)

// newWatcher returns one of the file of this name in dir.
func newWatcher(dir, name string) (*watcher, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if errors.Is(err, syscall.EMFILE) {
		return nil, noWatch(err)
	} else if err != nil {
		return nil, disk.Explain(os.NewSyscallError("inotify_init1", err))
	}
	w := &watcher{dir: dir, name: name, notices: os.NewFile(uintptr(fd), "inotify")}
	if _, err := syscall.InotifyAddWatch(fd, dir, replaced|goneAway|syscall.IN_ONLYDIR); err != nil {
		return nil, errors.Join(disk.Explain(os.NewSyscallError("inotify_add_watch", err)), w.Close())
	}
	return w, nil
}

// Close ends the watch.
func (w *watcher) Close() error { return w.notices.Close() }

// Wait returns nil when the file may have changed.
func (w *watcher) Wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = w.notices.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		n, err := w.notices.Read(w.buf[:])
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
		if changed, err := w.changed(w.buf[:n]); changed || err != nil {
			return err
		}
	}
}

// changed reports whether one of these notices is about the file.
func (w *watcher) changed(notices []byte) (changed bool, err error) {
	for len(notices) > 0 {
		var notice syscall.InotifyEvent
		size, err := binary.Decode(notices, binary.NativeEndian, &notice)
		if err != nil || len(notices) < size+int(notice.Len) {
			return false, fmt.Errorf("a notice of inotify cannot be read (%d bytes)", len(notices))
		}
		name := notices[size : size+int(notice.Len)]
		notices = notices[size+len(name):]
		switch {
		case notice.Mask&(goneAway|syscall.IN_IGNORED|syscall.IN_UNMOUNT) != 0:
			return false, gone(w.dir)
		case notice.Mask&syscall.IN_Q_OVERFLOW != 0, // something was missed, so look
			string(bytes.TrimRight(name, "\x00")) == w.name:
			changed = true
		}
	}
	return changed, nil
}
