//go:build linux || darwin

// Package lock locks a file against other processes.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/disk"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// How long to wait between two attempts at the lock. It is held for the time of
// two fsyncs. Waiting in the kernel instead could not be given up.
const (
	firstLockWait = 250 * time.Microsecond
	longLockWait  = 8 * time.Millisecond
)

// Held is an open lock file, locked. Closing it unlocks it.
type Held struct{ *os.File }

// Wait locks the file at path, and makes it with this mode if it is missing. If another process has
// locked it, Wait waits.
func Wait(ctx context.Context, path string, mode fs.FileMode) (*Held, error) {
	for wait := firstLockWait; ; wait = min(2*wait, longLockWait) {
		f, err := try(path, mode)
		if f != nil || err != nil {
			return f, err
		}
		next := time.NewTimer(wait/2 + rand.N(wait)) // no two in step
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return nil, fmt.Errorf("another process holds the lock on %s: %w", path, ctx.Err())
		}
	}
}

// try returns nil without an error if another has the lock.
func try(path string, mode fs.FileMode) (*Held, error) {
	// It need not be writable to be locked, so that it may be another user's.
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, mode)
	if err != nil {
		return nil, disk.Explain(err)
	}
	err = flock(f)
	if err == nil {
		// It may have been removed, and made again, since it was opened.
		if err = (&Held{f}).Still(); errors.Is(err, errOtherLock) {
			err = syscall.EWOULDBLOCK
		}
	}
	switch {
	case err == nil:
		return &Held{f}, nil
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
			return disk.Explain(&fs.PathError{Op: "flock", Path: f.Name(), Err: err})
		}
		return err
	}
}

var errOtherLock = errors.New("the lock file was removed or replaced while it was locked; leave it alone while the election is in use")

// Still returns an error unless the lock file at its path is the one that is held: if it was
// removed, another process may have locked a new one.
func (h *Held) Still() error {
	mine, err := h.Stat()
	if err != nil {
		return disk.Explain(err)
	}
	there, err := os.Lstat(h.Name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errOtherLock
	case err != nil:
		return disk.Explain(err)
	case !mine.Mode().IsRegular():
		return store.Wrong("%s is not a regular file (%v): remove it", h.Name(), mine.Mode())
	case !os.SameFile(mine, there):
		return errOtherLock
	}
	return nil
}
