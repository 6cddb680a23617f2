//go:build linux || darwin

package file

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// ReadCurrent implements leaderelection.RaceDecider. It takes no lock, and is
// never stale. What it returns is on the disk: it syncs the directory, since a
// candidate may take what it reads for the proof that its own write has happened.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := d.read(ctx, d.keep)
	return e, d.failed("reading", err)
}

// read reads the file, and returns what it contained unless kept objects.
func (d *Decider) read(ctx context.Context, kept func(content) error) (*leaderelection.RaceEntry, error) {
	return within.Do(ctx, d.reading, func() (*leaderelection.RaceEntry, error) {
		if err := d.checkPlace(); err != nil {
			return nil, err
		}
		c, err := d.load()
		if err != nil {
			return nil, err
		}
		if err := kept(c); err != nil {
			return nil, err
		}
		return d.entry(c)
	})
}

// keep brings the rename on to the disk that has put c in its place: until then a
// loss of power might undo it. There is nothing to keep of a file that is missing.
func (d *Decider) keep(c content) error {
	if !c.exists {
		return nil
	}
	if err := d.syncDir(filepath.Dir(d.path)); err != nil {
		return fmt.Errorf("the record is in its place, but may not be on the disk yet: %w", explain(err))
	}
	return nil
}

// WriteEntry implements leaderelection.RaceDecider. A refusal is a
// leaderelection.LostRaceError with the current record. Where the file is not
// ours or cannot be read as a record, it is left alone.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	if err := ctx.Err(); err != nil {
		return nil, d.failed("writing", err)
	}
	data, err := record.Marshal(entry)
	if err != nil {
		return nil, d.failed("writing", err)
	}
	was := &token{}
	if entry.Token != nil {
		ours := false
		if was, ours = entry.Token.(*token); !ours {
			return nil, d.failed("writing", permanent("the Token is a %T, of another kind of store", entry.Token))
		}
	}
	t, err := within.Do(ctx, d.writing, func() (*token, error) { return d.replace(ctx, was, append(data, '\n')) })
	if err != nil {
		return nil, d.failed("writing", err)
	}
	return t, nil
}

// content is what the file contained at a moment.
type content struct {
	*token
	data []byte
	mode fs.FileMode
}

// entry makes of a file's content what ReadCurrent returns.
func (d *Decider) entry(c content) (*leaderelection.RaceEntry, error) {
	e := &leaderelection.RaceEntry{}
	if c.exists {
		var err error
		if e, err = record.Unmarshal(d.path, c.data); err != nil {
			return nil, err
		}
	}
	e.Token = c.token
	return e, nil
}

// load reads the file. That there is none is a version, too.
func (d *Decider) load() (content, error) {
	// Neither a symbolic link, which a rename would replace, nor a pipe, for
	// whose writer this would wait.
	f, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return content{token: &token{}}, nil
	} else if err != nil {
		return content{}, explain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return content{}, explain(err)
	} else if !info.Mode().IsRegular() {
		return content{}, permanent("it is not a regular file (%v): name another", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, record.MaxSize+2)) // what is longer is refused for it
	if err != nil {
		return content{}, explain(err)
	}
	return content{token: newToken(data, info), data: data, mode: info.Mode().Perm()}, nil
}

// tick is what a file's modification time may lag behind the clock: file systems
// use the kernel's coarse one, which moves with its ticks.
const tick = 10 * time.Millisecond

func newToken(data []byte, info fs.FileInfo) *token {
	return &token{exists: true, sum: sha256.Sum256(data), written: info.ModTime().Round(0).Truncate(tick)}
}

// replace is the conditional write: it makes data the file's content where that
// is still the version was. What takes time, bringing data on to the disk, is done
// before and after the lock is held: whoever is stopped in the meantime keeps nobody
// else from writing.
func (d *Decider) replace(ctx context.Context, was *token, data []byte) (*token, error) {
	if err := d.makePlace(); err != nil {
		return nil, err
	}
	d.tidy.Do(d.removeLeftOvers)
	if err := d.keepPlace(); err != nil {
		return nil, err
	}
	old, err := d.load()
	if err != nil {
		return nil, err
	}
	if !old.same(was) {
		return nil, d.lost(old)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	temp, next, err := d.prepare(data, old)
	if err != nil {
		return nil, err
	}
	if err := d.swap(ctx, was, temp); err != nil {
		_ = os.Remove(temp)
		return nil, err
	}
	if err := d.keep(content{token: next}); err != nil {
		return nil, err
	}
	return next, nil
}

// swap puts temp in the file's place, under the lock, where the file is still the
// version was.
func (d *Decider) swap(ctx context.Context, was *token, temp string) error {
	lock, err := d.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks

	now, err := d.load()
	if err != nil {
		return err
	}
	if !now.same(was) {
		_ = lock.Close() // nobody waits while lost brings it on to the disk
		return d.lost(now)
	}
	// The last moment to think better of it.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.stillLocked(lock); err != nil {
		return err
	}
	return explain(os.Rename(temp, d.path))
}

// lost is what a writer is told who comes too late.
func (d *Decider) lost(now content) error {
	current, err := d.entry(now)
	if err != nil || d.keep(now) != nil {
		current = nil // whoever reads will be told why
	}
	return &leaderelection.LostRaceError{Place: d.path, Current: current}
}

// tempName is a new name for a temporary file.
func (d *Decider) tempName() string { return d.path + tempMark + rand.Text() }

const tempMark = ".tmp-"

// isTemp reports whether a file of this name, in the directory of the record, is one
// that tempName has named: what else lies there is not ours to touch.
func (d *Decider) isTemp(name string) bool {
	random, is := strings.CutPrefix(name, filepath.Base(d.path)+tempMark)
	return is && len(random) == len(rand.Text()) && strings.Trim(random, base32) == ""
}

const base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // the digits of rand.Text

// removeLeftOvers removes what processes have left that died as they wrote: files
// that no write can still be about. (One who was stopped for so long finds its file
// gone, and tries again.)
func (d *Decider) removeLeftOvers() {
	dir, err := os.ReadDir(filepath.Dir(d.path))
	if err != nil {
		return // a write will say so
	}
	for _, f := range dir {
		if !d.isTemp(f.Name()) || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(filepath.Join(filepath.Dir(d.path), f.Name()))
		}
	}
}

// prepare writes data, which is to replace the content old, to a temporary file of
// its own and on to the disk.
func (d *Decider) prepare(data []byte, old content) (temp string, next *token, err error) {
	temp = d.tempName()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, d.opts.Mode)
	if err != nil {
		return "", nil, explain(err)
	}
	info, err := fill(f, data, old)
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(temp)
		return "", nil, explain(err)
	}
	return temp, newToken(data, info), nil
}

func fill(f *os.File, data []byte, old content) (fs.FileInfo, error) {
	if old.exists { // somebody may have set its permissions
		if err := f.Chmod(old.mode); err != nil {
			return nil, err
		}
	}
	if _, err := f.Write(data); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return info, f.Sync()
}

// checkPlace says what is wrong with the directory.
func (d *Decider) checkPlace() error {
	if d.bad != nil {
		return permanent("%w", d.bad)
	}
	dir := filepath.Dir(d.path)
	kind, err := d.networkFS(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.opts.CreateDir:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return permanent("the directory %s does not exist: create it, or set Options.CreateDir (create=true in an address)", dir)
	case err != nil:
		return explain(fmt.Errorf("looking at the directory %s: %w", dir, err))
	case kind != "" && !d.opts.AllowNetwork:
		return permanent("the directory %s is on a file system of the kind %s, which is or may be on another machine: "+
			"there neither locks nor atomic renames nor notices of changes are sure. Use a local disk, or a store made for several machines; "+
			"where only this machine uses it, set Options.AllowNetwork (allow_network=true in an address)", dir, kind)
	}
	return nil
}

// makePlace is checkPlace for a write: it creates what it may.
func (d *Decider) makePlace() error {
	if d.bad == nil && d.opts.CreateDir {
		dir := filepath.Dir(d.path)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			d.placeKept.Store(false)
		}
		mode := 0o700 | d.opts.Mode | d.opts.Mode&0o444>>2 // who may read may search
		if err := os.MkdirAll(dir, mode); err != nil {
			return explain(err)
		}
	}
	return d.checkPlace()
}

// keepPlace brings the directories that this package makes on to the disk, each by
// its parent, once: also those that another process may just have made.
func (d *Decider) keepPlace() error {
	if !d.opts.CreateDir || d.placeKept.Swap(true) {
		return nil
	}
	for dir := filepath.Dir(d.path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		// One that may not be opened is none that this package makes.
		if err := d.syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			d.placeKept.Store(false)
			return fmt.Errorf("the directory %s may not be on the disk yet: %w", dir, explain(err))
		}
	}
	return nil
}

// syncDir brings a rename in dir on to the disk.
func syncDir(dir string) error {
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

// explain adds to a system's error what to do about it, and whether trying again
// can help.
func explain(err error) error {
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
		return permanent("%w: the user with the id %d may not; a candidate must be able to create and replace files in the directory (with the sticky bit, as /tmp has it, only its own)", err, os.Geteuid())
	case is(syscall.EROFS):
		return permanent("%w: choose a directory that can be written to", err)
	case is(syscall.ELOOP):
		return permanent("%w: it is a symbolic link, or there are too many on the way: name the file itself", err)
	case is(syscall.EBUSY):
		return permanent("%w: is the file a mount point? Mount its directory instead", err)
	case is(syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.EINVAL, syscall.ENXIO, syscall.EOPNOTSUPP):
		return permanent("%w: it cannot be an election's file: name another", err)
	}
	return err
}
