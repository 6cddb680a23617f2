package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// expiryFile tells a command until when it may act as leader. It is replaced as a
// whole, so that a reader never finds half of it. If it cannot be written, the
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

// newExpiryFile returns the file at path, or if that is empty one in a
// directory of its own.
func newExpiryFile(path string) (*expiryFile, error) {
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("--expiry-file: %w", err)
		}
		return &expiryFile{path: abs}, nil
	}
	dir, err := os.MkdirTemp("", "leaderelect-")
	if err != nil {
		return nil, fmt.Errorf("a directory for the expiry file: %w; have TMPDIR name one that can be written to, or give --expiry-file", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the command may run as another user
		_ = os.Remove(dir)
		return nil, fmt.Errorf("a directory for the expiry file: %w", err)
	}
	return &expiryFile{path: filepath.Join(dir, "expiry"), own: dir}, nil
}

// tryExpiryFile reports what would keep a leader from writing it. A file that is
// there already is left as it is: it may be another leader's.
func tryExpiryFile(path string) error {
	f, err := newExpiryFile(path)
	if err != nil {
		return err
	}
	if f.own != "" {
		defer os.Remove(f.own)
	}
	if info, err := os.Stat(f.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("the expiry file: %s exists, and is not a file", f.path)
	}
	advice := "have TMPDIR name a directory that can be written to and has room, or give --expiry-file"
	if f.own == "" {
		advice = "give --expiry-file a name in a directory that can be written to and has room"
	}
	try, err := os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+"-")
	if err != nil {
		return fmt.Errorf("the expiry file: %w; %s", err, advice)
	}
	defer os.Remove(try.Name())
	_, err = try.Write(text(time.Now()))
	if err := errors.Join(err, try.Close()); err != nil {
		return fmt.Errorf("the expiry file: %w; %s", err, advice)
	}
	return nil
}

// text is what the file says.
func text(end time.Time) []byte {
	end = end.UTC()
	return fmt.Appendf(nil, "%d\n%s\n", end.Unix(), end.Format(time.RFC3339Nano))
}

func (f *expiryFile) next() string { return f.path + ".new" }

func (f *expiryFile) write(end time.Time) error {
	if err := os.WriteFile(f.next(), text(end), 0o644); err != nil {
		_ = os.Remove(f.next())
		return fmt.Errorf("the expiry file: %w", err)
	}
	if err := os.Rename(f.next(), f.path); err != nil {
		return fmt.Errorf("the expiry file: %w", err)
	}
	return nil
}

// all is what there is of it, in the order in which it can be removed.
func (f *expiryFile) all() []string {
	all := []string{f.path, f.next()}
	if f.own != "" {
		all = append(all, f.own)
	}
	return all
}

// remove takes it away when the leadership is over.
func (f *expiryFile) remove() {
	for _, path := range f.all() {
		_ = os.Remove(path)
	}
}
