package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// expiryFile tells a command until when it may act as leader. It is replaced as a
// whole, so that a reader never finds half of it. Where it cannot be written, the
// old one stays, which names an earlier time: that is safe.
//
//	1790000000
//	2026-09-21T13:46:40.123456789Z
//
// The first line is in whole seconds since 1970, rounded down, for date +%s.
type expiryFile struct {
	path string
	own  string // a directory to remove, too
}

// newExpiryFile returns the file at path, or where that is empty one in a
// directory of its own.
func newExpiryFile(path string) (*expiryFile, error) {
	if path != "" {
		abs, err := filepath.Abs(path)
		return &expiryFile{path: abs}, err
	}
	dir, err := os.MkdirTemp("", "leaderelect-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the command may run as another user
		return nil, err
	}
	return &expiryFile{path: filepath.Join(dir, "expiry"), own: dir}, nil
}

func (f *expiryFile) write(end time.Time) error {
	end = end.UTC()
	next := f.path + ".new"
	text := fmt.Sprintf("%d\n%s\n", end.Unix(), end.Format(time.RFC3339Nano))
	if err := os.WriteFile(next, []byte(text), 0o644); err != nil {
		_ = os.Remove(next)
		return err
	}
	return os.Rename(next, f.path)
}

// remove takes it away when the reign is over.
func (f *expiryFile) remove() {
	_ = os.Remove(f.path)
	_ = os.Remove(f.path + ".new")
	if f.own != "" {
		_ = os.Remove(f.own)
	}
}
