//go:build linux || darwin

package lock_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/lock"
)

// Who may only read cannot open the lock file, and so keep others from writing. A file that is wider
// is narrowed.
func TestLocksAreForWriters(t *testing.T) {
	old := syscall.Umask(0o022) // which keeps no group out
	defer syscall.Umask(old)
	for name, c := range map[string]struct{ dir, mode, before, want fs.FileMode }{
		"its user's":                   {0o755, 0o644, 0, 0o600},
		"of one who keeps it private":  {0o700, 0o600, 0, 0o600},
		"the directory's group's":      {0o775, 0o644, 0, 0o660},
		"the record's group's":         {0o755, 0o664, 0, 0o660},
		"everybody's":                  {0o777, 0o644, 0, 0o666},
		"in a directory as /tmp":       {0o777 | fs.ModeSticky, 0o644, 0, 0o600},
		"readable, of an earlier time": {0o755, 0o644, 0o644, 0o600},
		"too narrow for the group":     {0o775, 0o644, 0o600, 0o660},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "e.lock")
			if c.before != 0 {
				if err := os.WriteFile(path, nil, c.before); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.dir); err != nil {
				t.Fatal(err)
			}
			of, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				held, err := lock.Wait(t.Context(), path, lock.Writers{Mode: c.mode, Of: of})
				if err != nil {
					t.Fatal(err)
				}
				info, err := held.Stat()
				if err != nil || info.Mode().Perm() != c.want {
					t.Errorf("%v, %v, want %v", info.Mode(), err, c.want)
				}
				if err := held.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A file of several names may be somebody's data: its mode stays.
func TestAnothersFileStays(t *testing.T) {
	dir := t.TempDir()
	data, path := filepath.Join(dir, "data"), filepath.Join(dir, "e.lock")
	if err := os.WriteFile(data, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(data, path); err != nil {
		t.Fatal(err)
	}
	held, err := lock.Wait(t.Context(), path, lock.Writers{Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if info, err := os.Stat(data); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
