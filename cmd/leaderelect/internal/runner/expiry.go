package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
)

// expiryFile tells a command until when it may act as leader. It is replaced as a
// whole, so that a reader never finds half of it.
//
//	1790000000
//	2026-09-21T13:46:40.123456789Z
//
// The first line is in whole seconds since 1970, rounded down, for date +%s.
//
// Its file system may hang. So all that is done to the file is done by the box, one thing after
// another: begin and remove wait for it, for a while, and tell does not. An extension that could not
// be written leaves a time that is too early, which is safe; a command that must not begin without the
// file, or a lease that must not be released while the file says that somebody may act, waits to know.
type expiryFile struct {
	path     string        // as it was given; empty: one is made
	patience time.Duration // in which it is to be made
	box      outbox.Box

	// Of the box's goroutine, and known to others when begin has succeeded:
	file string
	own  string // a directory to remove, too
	says bool   // it was written

	newest  atomic.Pointer[time.Time] // that is to be written
	writing atomic.Int32              // writes that have not ended
	late    atomic.Bool               // it has been said that they do not end
}

func newExpiryFile(path string) *expiryFile {
	return &expiryFile{path: path, patience: 2 * time.Second}
}

// advise says what err is about, and what to do.
func (f *expiryFile) advise(err error) error {
	switch {
	case err == nil:
		return nil
	case f.path == "":
		return fmt.Errorf("the expiry file: %w; have TMPDIR name a directory that can be written to and has room, or give --expiry-file", err)
	}
	return fmt.Errorf("the expiry file: %w; give --expiry-file a name in a directory that can be written to and has room", err)
}

// make finds the file's place, and makes its directory if it is to have one of its own.
func (f *expiryFile) make() (err error) {
	switch {
	case f.file != "":
		return nil
	case f.path != "":
		if f.file, err = filepath.Abs(f.path); err != nil {
			return fmt.Errorf("--expiry-file: %w", err)
		}
		return nil
	}
	dir, err := os.MkdirTemp("", "leaderelect-")
	if err != nil {
		return fmt.Errorf("a directory for it: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the command may run as another user
		_ = os.Remove(dir)
		return fmt.Errorf("a directory for it: %w", err)
	}
	f.own, f.file = dir, filepath.Join(dir, "expiry")
	return nil
}

// try reports what would keep a leader from writing it. A file that is there already is left as it is:
// it may be another leader's.
func (f *expiryFile) try() error {
	err := f.box.Within(context.Background(), 5*f.patience, func() error {
		f := newExpiryFile(f.path)
		if err := f.make(); err != nil {
			return err
		}
		if f.own != "" {
			defer os.Remove(f.own)
		}
		if info, err := os.Stat(f.file); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s exists, and is not a file", f.file)
		}
		if info, err := os.Stat(filepath.Dir(f.file)); err == nil && everybodys(info) {
			return fmt.Errorf("everybody may replace files in %s, and so tell the command that it may act: take a directory that is this user's, or give this one the sticky bit (chmod +t)", filepath.Dir(f.file))
		}
		try, err := written(f.file, time.Now())
		if err == nil {
			err = os.Remove(try)
		}
		return err
	})
	return f.advise(err)
}

// everybodys reports whether each user may replace the files of others in a directory.
func everybodys(dir os.FileInfo) bool {
	return runtime.GOOS != "windows" && dir.Mode().Perm()&0o002 != 0 && dir.Mode()&os.ModeSticky == 0
}

// text is what the file says.
func text(end time.Time) []byte {
	end = end.UTC()
	return fmt.Appendf(nil, "%d\n%s\n", end.Unix(), end.Format(time.RFC3339Nano))
}

// written makes a new file next to file that says end. Its name cannot be guessed, and what has that
// name already is not opened: others may write to the directory.
func written(file string, end time.Time) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return "", err
	}
	_, err = f.Write(text(end))
	if runtime.GOOS != "windows" {
		err = errors.Join(err, f.Chmod(0o644)) // the command may run as another user
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// replace has the file say the newest end.
func (f *expiryFile) replace() error {
	if err := f.make(); err != nil {
		return err
	}
	name, err := written(f.file, *f.newest.Load())
	if err != nil {
		return err
	}
	if err := os.Rename(name, f.file); err != nil {
		_ = os.Remove(name)
		return err
	}
	f.says = true
	return nil
}

// begin writes the file, and returns when it says end, or why it may not.
func (f *expiryFile) begin(ctx context.Context, limit time.Duration, end time.Time) error {
	f.newest.Store(&end)
	f.late.Store(false)
	return f.advise(f.box.Within(ctx, limit, f.replace))
}

// tell has the file say end as soon as that can be written. Until then it says an earlier time.
func (f *expiryFile) tell(end time.Time, log *slog.Logger) {
	f.newest.Store(&end)
	if f.writing.Load() > 0 && !f.late.Swap(true) {
		log.Warn("the expiry file is not written, since its file system is slow, or hangs: the time in it is too early", "file", f.file)
	}
	f.writing.Add(1)
	if !f.box.Put(1, func() {
		defer f.writing.Add(-1)
		switch err := f.replace(); {
		case err != nil:
			log.Warn("the expiry file cannot be written: the time in it is too early", "err", err)
		case f.late.Swap(false):
			log.Info("the expiry file is written again")
		}
	}) {
		f.writing.Add(-1) // the one that waits will do
	}
}

// all is what there is of it, in the order in which it can be removed.
func (f *expiryFile) all() []string {
	if f.own != "" {
		return []string{f.file, f.own}
	}
	return []string{f.file}
}

// remove takes it away when the leadership is over, waits for that no longer than within, and reports what it
// may have left behind.
func (f *expiryFile) remove(within time.Duration) error {
	done := make(chan error, 1)
	f.box.Put(math.MaxInt, func() { // it is done in any case
		var err error
		if f.file != "" {
			for _, path := range f.all() {
				if e := os.Remove(path); e != nil && f.says && !errors.Is(e, os.ErrNotExist) {
					err = errors.Join(err, e)
				}
			}
		}
		f.file, f.own, f.says = "", "", false
		done <- err
	})
	over := time.NewTimer(within)
	defer over.Stop()
	var err error
	select {
	case err = <-done:
	case <-over.C:
		err = fmt.Errorf("%w: not removed after %v", outbox.ErrHangs, within)
	}
	if err != nil {
		return fmt.Errorf("the expiry file: %w", err)
	}
	return nil
}
