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
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/disk"
	"github.com/c8e606e4/leaderelection/deciders/internal/lock"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// ReadCurrent implements leaderelection.RaceDecider. It takes no lock, and is never stale. It syncs
// the directory, so the record that it returns is on the disk: a candidate may take it for the
// proof that its own write has happened.
func (d *Decider) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	return d.election.Read(ctx)
}

// WriteEntry implements leaderelection.RaceDecider. A refusal is a leaderelection.LostRaceError
// with the current record. If the file is not ours, or is not a readable record, it is left alone.
func (d *Decider) WriteEntry(ctx context.Context, entry *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	return d.election.Write(ctx, entry)
}

// Load implements store.Store.
func (b *backend) Load(ctx context.Context) (store.Stored[token], error) {
	return b.read(ctx, b.keep)
}

// Swap implements store.Store.
func (b *backend) Swap(ctx context.Context, at token, data []byte, _ *leaderelection.RaceEntry) (token, error) {
	return within.Do(ctx, b.writing, func() (token, error) { return b.replace(ctx, at, append(data, '\n')) })
}

// Judge implements store.Store. Errors of files are explained where they come from.
func (b *backend) Judge(error) store.Verdict { return store.Verdict{} }

// read reads the file, and returns what it contained unless kept objects.
func (b *backend) read(ctx context.Context, kept func(content) error) (store.Stored[token], error) {
	return within.Do(ctx, b.reading, func() (s store.Stored[token], err error) {
		if err := b.checkPlace(); err != nil {
			return s, err
		}
		c, err := b.load()
		if err == nil {
			err = kept(c)
		}
		if err != nil {
			return s, err
		}
		return c.stored(), nil
	})
}

// keep brings the rename on to the disk that has put c in its place: until then a
// loss of power might undo it. There is nothing to keep of a file that is missing.
func (b *backend) keep(c content) error {
	if !c.exists {
		return nil
	}
	if err := b.syncDir(filepath.Dir(b.path)); err != nil {
		return fmt.Errorf("the record is in its place, but may not be on the disk yet: %w", disk.Explain(err))
	}
	return nil
}

// content is what the file contained at a moment.
type content struct {
	token
	data []byte
	mode fs.FileMode
}

func (c content) stored() store.Stored[token] {
	return store.Stored[token]{Data: c.data, At: c.token, None: !c.exists}
}

// load reads the file. That there is none is a version, too.
func (b *backend) load() (content, error) {
	// Neither a symbolic link, which a rename would replace, nor a pipe, for
	// whose writer this would wait.
	f, err := os.OpenFile(b.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, nil
	} else if err != nil {
		return content{}, disk.Explain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return content{}, disk.Explain(err)
	} else if !info.Mode().IsRegular() {
		return content{}, store.Wrong("it is not a regular file (%v): name another", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, store.MaxSize+2)) // what is longer is refused for it
	if err != nil {
		return content{}, disk.Explain(err)
	}
	return content{token: newToken(data, info), data: data, mode: info.Mode().Perm()}, nil
}

// tick is what a file's modification time may lag behind the clock: file systems
// use the kernel's coarse one, which moves with its ticks.
const tick = 10 * time.Millisecond

func newToken(data []byte, info fs.FileInfo) token {
	return token{exists: true, sum: sha256.Sum256(data), written: info.ModTime().Round(0).Truncate(tick)}
}

// replace is the conditional write: it makes data the file's content if that
// is still the version was. What takes time, bringing data on to the disk, is done
// before and after the lock is held: whoever is stopped in the meantime keeps nobody
// else from writing.
func (b *backend) replace(ctx context.Context, was token, data []byte) (token, error) {
	if err := b.makePlace(); err != nil {
		return token{}, err
	}
	b.tidy.Do(b.removeLeftOvers)
	if err := b.keepPlace(); err != nil {
		return token{}, err
	}
	old, err := b.load()
	if err != nil {
		return token{}, err
	}
	if !old.same(was) {
		return token{}, b.lost(old)
	}
	if err := ctx.Err(); err != nil {
		return token{}, err
	}
	temp, next, err := b.prepare(data, old)
	if err != nil {
		return token{}, err
	}
	if err := b.swap(ctx, was, temp); err != nil {
		_ = os.Remove(temp)
		return token{}, err
	}
	if err := b.keep(content{token: next}); err != nil {
		return token{}, err
	}
	return next, nil
}

// swap puts temp in the file's place, under the lock, if the file is still the
// version was.
func (b *backend) swap(ctx context.Context, was token, temp string) error {
	dir, err := os.Stat(filepath.Dir(b.path)) // who may write there may replace the record
	if err != nil {
		return disk.Explain(err)
	}
	held, err := lock.Wait(ctx, b.path+".lock", lock.Writers{Mode: b.opts.Mode, Of: dir})
	if err != nil {
		return err
	}
	defer held.Close() // which unlocks

	now, err := b.load()
	if err != nil {
		return err
	}
	if !now.same(was) {
		_ = held.Close() // nobody waits while lost brings it on to the disk
		return b.lost(now)
	}
	// The last moment to think better of it.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := held.Still(); err != nil {
		return err
	}
	return disk.Explain(os.Rename(temp, b.path))
}

// lost is what a writer is told who comes too late.
func (b *backend) lost(now content) error {
	if b.keep(now) != nil {
		return &leaderelection.LostRaceError{} // whoever reads will be told why
	}
	return &store.Refusal[token]{Current: now.stored()}
}

// tempName is a new name for a temporary file.
func (b *backend) tempName() string { return b.path + tempMark + rand.Text() }

const tempMark = ".tmp-"

// isTemp reports whether a file of this name, in the directory of the record, is one
// that tempName has named: what else lies there is not ours to touch.
func (b *backend) isTemp(name string) bool {
	random, is := strings.CutPrefix(name, filepath.Base(b.path)+tempMark)
	return is && len(random) == len(rand.Text()) && strings.Trim(random, base32) == ""
}

const base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" // the digits of rand.Text

// removeLeftOvers removes what processes have left that died as they wrote: files
// that no write can still be about. (One who was stopped for so long finds its file
// gone, and tries again.)
func (b *backend) removeLeftOvers() {
	dir, err := os.ReadDir(filepath.Dir(b.path))
	if err != nil {
		return // a write will say so
	}
	for _, f := range dir {
		if !b.isTemp(f.Name()) || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(filepath.Join(filepath.Dir(b.path), f.Name()))
		}
	}
}

// prepare writes data, which is to replace the content old, to a temporary file of
// its own and on to the disk.
func (b *backend) prepare(data []byte, old content) (temp string, next token, err error) {
	temp = b.tempName()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, b.opts.Mode)
	if err != nil {
		return "", next, disk.Explain(err)
	}
	info, err := fill(f, data, old)
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(temp)
		return "", next, disk.Explain(err)
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
func (b *backend) checkPlace() error {
	dir := filepath.Dir(b.path)
	kind, err := b.networkFS(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.CreateDir:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return store.Wrong("the directory %s does not exist: create it, or set Options.CreateDir (create=true in an address)", dir)
	case err != nil:
		return disk.Explain(fmt.Errorf("looking at the directory %s: %w", dir, err))
	case kind != "" && !b.opts.AllowNetwork:
		return store.Wrong("the directory %s is on a file system of the kind %s, which is or may be on another machine: "+
			"its locks, renames and notices of changes are not reliable. Use a local disk, or a store made for several machines; "+
			"if only this machine uses it, set Options.AllowNetwork (allow_network=true in an address)", dir, kind)
	}
	return nil
}

// makePlace is checkPlace for a write: it creates what it may.
func (b *backend) makePlace() error {
	if b.opts.CreateDir {
		dir := filepath.Dir(b.path)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			b.placeKept.Store(false)
		}
		mode := 0o700 | b.opts.Mode | b.opts.Mode&0o444>>2 // who may read may search
		if err := os.MkdirAll(dir, mode); err != nil {
			return disk.Explain(err)
		}
	}
	return b.checkPlace()
}

// keepPlace brings the directories that this package makes on to the disk, each by
// its parent, once: also those that another process may just have made.
func (b *backend) keepPlace() error {
	if !b.opts.CreateDir || b.placeKept.Swap(true) {
		return nil
	}
	for dir := filepath.Dir(b.path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		// One that may not be opened is none that this package makes.
		if err := b.syncDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrPermission) {
			b.placeKept.Store(false)
			return fmt.Errorf("the directory %s may not be on the disk yet: %w", dir, disk.Explain(err))
		}
	}
	return nil
}

// Changes implements leaderelection.ChangeFeed. It watches the directory for files that are renamed
// or removed, since each write replaces the file. It shows a record as soon as it is in its place,
// which may be before it is on the disk. It merges states that follow each other faster than it
// reads them. It fails if the directory goes away, or if it cannot read the file.
func (d *Decider) Changes(ctx context.Context) iter.Seq2[*leaderelection.RaceEntry, error] {
	return d.election.Follow(ctx, d.follow)
}

func (d *Decider) follow(ctx context.Context, yield func(*leaderelection.RaceEntry) bool) error {
	w, err := within.Do(ctx, d.b.reading, d.b.watch)
	if err != nil {
		return err
	}
	defer w.Close()
	var last *token
	for {
		// After the watch began: nothing falls between.
		s, err := d.b.read(ctx, func(content) error { return nil })
		if err != nil {
			return err
		}
		if last == nil || !s.At.same(*last) {
			last = &s.At
			e, err := d.election.Entry(s)
			if err != nil {
				return err
			}
			if !yield(e) {
				return nil
			}
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

// watch is a watcher of the file. It leaves the directory alone if it is there: observers need
// not be able to write.
func (b *backend) watch() (*watcher, error) {
	dir, place := filepath.Dir(b.path), b.makePlace
	if _, err := os.Stat(dir); err == nil {
		place = b.checkPlace
	}
	if err := place(); err != nil {
		return nil, err
	}
	return newWatcher(dir, filepath.Base(b.path))
}

// noWatch is the error of a user who has as many watchers as the system allows.
func noWatch(err error) error {
	return fmt.Errorf("%w: no more files, or no more watchers (Linux: raise fs.inotify.max_user_instances); polling needs none", err)
}

// gone is the error of a watcher whose directory is not there any more.
func gone(dir string) error { return fmt.Errorf("the directory %s was removed or renamed", dir) }
