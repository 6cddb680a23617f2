// Package file keeps an election in one JSON file on a local disk, for the processes of one
// machine. It needs no server. It watches the directory, so a rename tells the others within a
// millisecond: it is a leaderelection.ChangeFeed. Idle standbys cost nothing, even next to a log
// that grows in the same directory.
//
//	d := file.NewDecider("/var/lib/myapp/election.json", nil)
//
// All candidates are on one machine and share its clock: set the ClockPolicy to SharedClock for all
// of them, and no time is lost to clocks that differ. Containers of one machine can elect among
// themselves if they share the directory. Mount the directory, not the file: a file that is a mount
// point cannot be replaced.
//
// # What is written where
//
// The record is the file itself: jq and cat can show it. Next to it are two more:
//
//   - "<file>.lock", empty. A writer holds an advisory lock (flock) on it while it compares and
//     replaces. It must stay there as long as anybody campaigns. Whoever could open it could keep
//     all others from writing. So its mode admits only those who may write the directory or, by
//     Options.Mode, the record. One that admits more is narrowed by its owner.
//   - "<file>.tmp-" with 26 random letters and digits, during a write only.
//
// A write takes these steps:
//
//  1. It writes the new record to a temporary file and calls fsync.
//  2. It takes the lock, compares the file's content with that which the entry was read at, and
//     renames the new file over it.
//  3. It releases the lock, and calls fsync on the directory.
//
// So at every moment the file is one record or the other, even after a crash or loss of power.
// Readers need no lock. If a process dies as it writes, a later process's first write removes its
// temporary file when that is a minute old. No file of another name is touched.
//
// A read calls fsync on the directory, too. A record is in its place before it is on the disk, and
// a candidate whose write had no response takes what it reads for the proof that its write has
// happened. A loss of power must not take back a number that is in use.
//
// A write that is given up takes its place, or not, as it would have.
//
// A process that is stopped (SIGSTOP, a debugger) in the fraction of a millisecond in which it holds
// the lock keeps the others from writing until it goes on or dies. Nobody leads meanwhile.
//
// # What the feed tells
//
// It watches the directory for files that are renamed or removed, and reads the record if that was
// its own. It shows a record that is in its place, but may not be on the disk yet: after a loss of
// power nobody is left who could act by it. To edit a record by hand, edit a copy and rename that
// (mv). The feed does not see changes in place or copies: the next read finds them. (On macOS the
// feed also looks once a second, and wakes for other files.)
//
// # Permissions
//
// Candidates create and rename files in the directory: they need write and search permission for
// it, and read permission for its files. If they run as different users, the directory must not
// have the sticky bit (as /tmp has), which would keep one from replacing another's file. If they
// share a group, give the directory to that group with the setgid bit (chgrp, chmod g+rwxs), so
// that each new file belongs to the group. Set Mode to 0o660, with a umask that leaves it.
// Observers need read permission for the directory and the file.
//
// # Costs and limits
//
// A write takes two fsyncs: one write each 7 s at the default of 15 s terms. A read takes one. A
// standby reads only while nobody leads or its feed is down, and costs nothing else. Each feed
// takes one inotify instance (Linux allows a user 128 by default, fs.inotify.max_user_instances).
// If none is left, candidates poll.
//
// The token's CommitTS is the file's modification time: the machine's own clock, as precise as a
// tick of the kernel (1 to 10 ms on most), and cut to 10 ms.
//
// # What the system promises
//
// Only one open file at a time holds an flock, and the lock ends with its process
// (https://man7.org/linux/man-pages/man2/flock.2.html). A rename over an existing file is atomic
// (https://pubs.opengroup.org/onlinepubs/9799919799/functions/rename.html). Both hold for one
// machine and a local file system.
//
// Network file systems (NFS, SMB, 9p, FUSE and others) keep locks on the client's side, serve reads
// from caches that may be old, and do not report another machine's changes. They are refused if the
// system can recognize them, unless Options.AllowNetwork is set.
//
// A disk that lies about flushing its cache can lose acknowledged writes, and so can restoring a
// backup or a snapshot. A tmpfs (often /tmp, always /run) forgets the record with the next boot,
// and the election is then empty: do not use it if something is fenced by its numbers. A file that
// is removed leaves no sign that there was one. A file of no bytes is damage, and is left alone.
//
// The package works on Linux and macOS. On other systems every call fails with an error that wraps
// leaderelection.ErrPermanent.
package file

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/disk"
	"github.com/c8e606e4/leaderelection/deciders/internal/networkfs"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/internal/within"
)

// Options adjusts a Decider. The zero value and nil are the same, and right for most.
type Options struct {
	// CreateDir makes the directory of the file, with its parents, if it is missing.
	CreateDir bool
	// Mode is the permissions of new files, less the umask. A record that is replaced keeps
	// those it has. Zero: 0o644. Candidates that run as different users of one group need
	// 0o660, in a directory with the setgid bit.
	Mode fs.FileMode
	// AllowNetwork allows a file on a file system that is, or may be, on another machine. Set
	// it only if you know that this machine alone uses it, such as a FUSE file system over a
	// local disk. Across machines nothing is promised, and two may lead.
	AllowNetwork bool
}

// Decider is one handle on the election in a file. It is a leaderelection.RaceDecider and a
// leaderelection.ChangeFeed. Its methods may be called by several goroutines at once. It holds
// nothing open between calls, so there is nothing to close.
type Decider struct {
	b        *backend
	election store.Election[token]
}

// backend is the store: one file.
type backend struct {
	path string
	opts Options
	// networkFS names the kind of a directory's file system if that is on
	// the network. A field, since tests have only local ones.
	networkFS func(dir string) (kind string, err error)
	syncDir   func(dir string) error // a field, since no test can cut the power
	tidy      sync.Once              // left-overs are removed by the first write
	placeKept atomic.Bool            // see keepPlace
	// A file operation cannot be interrupted: it runs in a goroutine of its
	// own, and these bound how many a disk that hangs may keep.
	writing, reading within.Calls
}

var (
	_ leaderelection.RaceDecider = (*Decider)(nil)
	_ leaderelection.ChangeFeed  = (*Decider)(nil)
)

// maxReading is how many reads of one handle may be under way at once.
const maxReading = 8

// NewDecider returns a handle on the election in the file at path. A relative path starts at the
// working directory as it is now. NewDecider does no I/O: the first call reports what is wrong.
func NewDecider(path string, opts *Options) *Decider {
	abs, err := filepath.Abs(path)
	switch {
	case path == "":
		err = errors.New("the path is empty")
	case err == nil && filepath.Dir(abs) == abs:
		err = errors.New("the path is a directory")
	}
	b := &backend{path: abs, networkFS: networkfs.Kind, syncDir: disk.Sync, writing: make(within.Calls, 1), reading: make(within.Calls, maxReading)}
	if opts != nil {
		b.opts = *opts
	}
	if b.opts.Mode == 0 {
		b.opts.Mode = 0o644
	}
	return &Decider{b: b, election: store.Election[token]{Store: b, Package: "file", Place: abs, Wrong: err}}
}

// Open returns a handle on the election that u names:
//
//	file:///var/lib/myapp/election.json
//	file:election.json?create=true
//
// The second form is relative to the working directory. Parameters: create=true is
// Options.CreateDir, mode=0660 (octal) is Options.Mode, allow_network=true is Options.AllowNetwork.
// Open does no I/O.
func Open(_ context.Context, u *url.URL) (*Decider, error) {
	path, opts, err := parse(u)
	if err != nil {
		return nil, store.OpenError("file", u, err)
	}
	return NewDecider(path, opts), nil
}

func parse(u *url.URL) (path string, opts *Options, err error) {
	path = u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", nil, err
		}
	}
	switch {
	case u.Scheme != "file":
		return "", nil, fmt.Errorf("the scheme is %q, and must be \"file\"", u.Scheme)
	case u.User != nil || u.Fragment != "":
		return "", nil, errors.New("a file has neither user nor fragment")
	case u.Host != "" && u.Host != "localhost":
		return "", nil, fmt.Errorf("the host is %q, and a file is on this machine: write file:///path (three slashes), or file:path", u.Host)
	case path == "" || path[len(path)-1] == '/':
		return "", nil, errors.New("it names no file: write file:///path/to/election.json")
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return "", nil, err
	}
	opts = &Options{CreateDir: p.Bool("create"), AllowNetwork: p.Bool("allow_network"), Mode: mode(p)}
	return path, opts, p.Rest()
}

func mode(p *store.Params) fs.FileMode {
	v := p.String("mode")
	if v == "" {
		return 0
	}
	m, err := strconv.ParseUint(v, 8, 32)
	if err != nil || m == 0 || fs.FileMode(m)&^fs.ModePerm != 0 {
		p.Wrong("the parameter %q: %q is not an octal mode such as 0660", "mode", v)
	}
	return fs.FileMode(m)
}

// token is a version of the file: what it contained. No two records of an
// election are alike, so no content comes back.
type token struct {
	exists  bool
	sum     [sha256.Size]byte
	written time.Time
}

// CommitTS is the modification time of the file; zero if there was none.
func (t token) CommitTS() time.Time { return t.written }

func (t token) same(o token) bool { return t.exists == o.exists && t.sum == o.sum }

// String names the place of the record: the file.
func (d *Decider) String() string { return d.election.Place }
