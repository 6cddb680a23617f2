//go:build linux || darwin

// Package watch tells when a file has been replaced or removed.
package watch

import "fmt"

// noWatch is the error of a user who has as many watchers as the system allows.
func noWatch(err error) error {
	return fmt.Errorf("%w: no more files, or no more watchers (Linux: raise fs.inotify.max_user_instances); polling needs none", err)
}

// gone is the error of a watcher whose directory is not there any more.
func gone(dir string) error { return fmt.Errorf("the directory %s was removed or renamed", dir) }
