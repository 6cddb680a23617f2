//go:build linux || darwin

package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// How long to wait between two attempts at the lock. It is held for the time of
// two fsyncs. Waiting in the kernel instead could not be given up.
const (
	firstLockWait = 250 * time.Microsecond
	longLockWait  = 8 * time.Millisecond
)

// lock returns the open lock file, locked. Closing it unlocks it.
func (b *backend) lock(ctx context.Context) (*os.File, error) {
	for wait := firstLockWait; ; wait = min(2*wait, longLockWait) {
		f, err := b.tryLock()
		if f != nil || err != nil {
			return f, err
		}
		next := time.NewTimer(wait/2 + rand.N(wait)) // no two in step
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil, fmt.Errorf("another process holds the lock on %s: %w", b.lockPath(), ctx.Err())
		}
	}
}

func (b *backend) lockPath() string { return b.path + ".lock" }

// tryLock returns nil without an error where another has the lock.
func (b *backend) tryLock() (*os.File, error) {
	// It need not be writable to be locked, so that it may be another user's.
	f, err := os.OpenFile(b.lockPath(), os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, b.opts.Mode)
	if err != nil {
		return nil, explain(err)
	}
	err = flock(f)
	if err == nil {
		// It may have been removed, and made afresh, since it was opened.
		if err = b.stillLocked(f); errors.Is(err, errOtherLock) {
			err = syscall.EWOULDBLOCK
		}
	}
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, f.Close()
	}
	return nil, errors.Join(err, f.Close())
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return explain(&fs.PathError{Op: "flock", Path: f.Name(), Err: err})
		}
		return err
	}
}

var errOtherLock = errors.New("the lock file was removed or replaced under its holder; nothing may touch it while the election is in use")

// stillLocked reports whether the lock file at its path is the one that is open as
// f: if somebody has removed it, another process may have locked another.
func (b *backend) stillLocked(f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return explain(err)
	}
	there, err := os.Lstat(b.lockPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errOtherLock
	case err != nil:
		return explain(err)
	case !mine.Mode().IsRegular():
		return store.Wrong("%s is not a regular file (%v): remove it", b.lockPath(), mine.Mode())
	case !os.SameFile(mine, there):
		return errOtherLock
	}
	return nil
}
