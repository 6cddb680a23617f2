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

// Writers are those who may lock: whoever may open the lock file can keep all others from writing.
type Writers struct {
	// Mode's write bits say who may, for the lock file's own user and group.
	Mode fs.FileMode
	// Of is a file or directory. Who may write to it may lock, too. In a directory with the
	// sticky bit this is nobody: others cannot replace what is in it.
	Of fs.FileInfo
}

// Wait locks the file at path, and makes it for the writers if it is missing. If it is this user's, and
// others may open it, they may not any more. If another process has locked it, Wait waits.
func Wait(ctx context.Context, path string, may Writers) (*Held, error) {
	for wait := firstLockWait; ; wait = min(2*wait, longLockWait) {
		f, err := try(path, may)
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
func try(path string, may Writers) (*Held, error) {
	f, err := open(path, may)
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

// open opens the lock file, for reading: that is enough to lock it, even if it is another user's.
func open(path string, may Writers) (*os.File, error) {
	const how = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	for range 3 {
		f, err := os.OpenFile(path, how, 0)
		created := false
		if errors.Is(err, fs.ErrNotExist) {
			f, err = os.OpenFile(path, how|os.O_CREATE|os.O_EXCL, 0o600)
			created = err == nil
		}
		switch {
		case errors.Is(err, fs.ErrExist):
			continue // another process has just made it
		case err != nil:
			return nil, err
		}
		if err := may.admit(f, created); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, errOtherLock
}

// admit gives the lock file to the writers if it was just made, and otherwise sets its mode.
func (w Writers) admit(f *os.File, created bool) error {
	var of *syscall.Stat_t
	if w.Of != nil && w.Of.Mode()&fs.ModeSticky == 0 {
		of, _ = w.Of.Sys().(*syscall.Stat_t)
	}
	if created && of != nil {
		// If it cannot be given to them, they cannot lock it: only root may give to any user.
		if os.Geteuid() == 0 {
			_ = f.Chown(int(of.Uid), int(of.Gid))
		} else {
			_ = f.Chown(-1, int(of.Gid))
		}
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, known := info.Sys().(*syscall.Stat_t)
	if !known || !info.Mode().IsRegular() {
		return nil // Still says why not
	}
	write := w.Mode & 0o022
	if of != nil {
		write |= w.Of.Mode() & 0o002
		if of.Gid == is.Gid {
			write |= w.Of.Mode() & 0o020
		}
	}
	want := 0o600 | write | write<<1
	mine := created || int(is.Uid) == os.Geteuid()
	if root := os.Geteuid() == 0; root && !mine {
		mine, want = true, want&info.Mode().Perm() // another user's is only narrowed
	}
	// A file of several names may be somebody else's data.
	if !mine || is.Nlink != 1 || info.Mode().Perm() == want {
		return nil
	}
	return f.Chmod(want)
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
