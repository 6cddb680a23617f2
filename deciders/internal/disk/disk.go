//go:build linux || darwin

// Package disk makes file changes durable, and explains a system's errors of files.
package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Sync makes a rename in dir durable.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // a file system that has nothing to do for a directory
	}
	return err
}

// Explain adds advice to a system's error, and says whether trying again can help.
func Explain(err error) error {
	is := func(errnos ...syscall.Errno) bool {
		for _, e := range errnos {
			if errors.Is(err, e) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return nil
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return fmt.Errorf("%w: make room on the disk; the record is unchanged", err)
	case is(syscall.EACCES, syscall.EPERM):
		return store.Wrong("%w: the user with the id %d may not; a candidate must be able to create and replace files in the directory (with the sticky bit, as /tmp has it, only its own)", err, os.Geteuid())
	case is(syscall.EROFS):
		return store.Wrong("%w: choose a directory that can be written to", err)
	case is(syscall.ELOOP):
		return store.Wrong("%w: it is a symbolic link, or there are too many on the way: name the file itself", err)
	case is(syscall.EBUSY):
		return store.Wrong("%w: is the file a mount point? Mount its directory instead", err)
	case is(syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ENXIO, syscall.EOPNOTSUPP):
		return store.Wrong("%w: it cannot be an election's file: name another", err)
	}
	return err
}
