//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// What is not a record is told, and left as it is.
func TestForeignContent(t *testing.T) {
	contents := feedtest.NoRecords()
	contents["NUL after a crash"] = strings.Repeat("\x00", 200)
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			path, d := newDecider(t)
			if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, d, path, "cannot be used")
			if name == "text" || name == "json" { // another's: an operator has mistaken the place
				if err := leaderelection.Reset(t.Context(), d, 7, true); !errors.Is(err, record.ErrForeign) {
					t.Errorf("Reset: %v", err)
				}
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != content {
				t.Errorf("the file was changed to %q, %v", data, err)
			}
		})
	}
}

// A record that a person edited, and that is still one, is a version like any
// other: the leader's next write loses, and what it reads is what was edited.
func TestHandEditedRecord(t *testing.T) {
	path, d := newDecider(t)
	token := feedtest.Write(t, d, 7, nil)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), `"extension":0`, `"extension": 4`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	var lost *leaderelection.LostRaceError
	_, err = d.WriteEntry(t.Context(), feedtest.State(8, token))
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.Extension != 4 {
		t.Fatalf("%v", err)
	}
	feedtest.Write(t, d, 9, lost.Current.Token)
}

// Places at which no election can be kept.
func TestBadPlaces(t *testing.T) {
	dir := tempDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	record, err := record.Marshal(feedtest.State(7, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(at("target"), record, 0o644),
		os.WriteFile(at("plain"), []byte("plain"), 0o644),
		os.Symlink(at("target"), at("link")),
		os.Symlink(at("nowhere"), at("dangling")),
		os.Symlink(at("plain"), at("lock-link.json.lock")),
		os.Mkdir(at("directory"), 0o755),
		os.Mkdir(at("lock-dir.json.lock"), 0o755),
		syscall.Mkfifo(at("fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, why := range map[string]string{
		"":                              "the path is empty",
		"/":                             "is a directory",
		at("missing/e.json"):            "does not exist: create it, or set Options.CreateDir",
		at("plain/e.json"):              "another",
		at("link"):                      "symbolic link",
		at("dangling"):                  "symbolic link",
		at("directory"):                 "not a regular file",
		at("fifo"):                      "not a regular file",
		at("socket"):                    "cannot be an election's file",
		at(strings.Repeat("long", 100)): "cannot be an election's file",
		at("nul\x00nul"):                "cannot be an election's file",
	} {
		t.Run(why, func(t *testing.T) { feedtest.Foreign(t, file.NewDecider(path, nil), path, why) })
	}
	for lock, why := range map[string]string{"lock-link.json": "symbolic link", "lock-dir.json": "not a regular file"} {
		_, err := file.NewDecider(at(lock), nil).WriteEntry(t.Context(), feedtest.State(1, nil))
		feedtest.Permanent(t, err, why, at(lock)+".lock")
	}
	for name, want := range map[string]string{"target": string(record), "plain": "plain"} {
		if data, err := os.ReadFile(at(name)); err != nil || string(data) != want {
			t.Errorf("%s was changed to %q, %v", name, data, err)
		}
	}
}

func TestNetworkFileSystemIsRefused(t *testing.T) {
	path := filepath.Join(tempDir(t), "election.json")
	if kind, err := file.NetworkFS(filepath.Dir(path)); kind != "" || err != nil {
		t.Fatalf("the temporary directory is on %q, %v: not a place for this test", kind, err)
	}
	d := file.NewDecider(path, nil)
	d.PretendNetwork("NFS")
	feedtest.Foreign(t, d, filepath.Dir(path), "on a file system of the kind NFS, which is or may be on another machine")
	if there := names(t, filepath.Dir(path)); there != "" {
		t.Errorf("left behind: %s", there)
	}
	d = file.NewDecider(path, &file.Options{AllowNetwork: true})
	d.PretendNetwork("NFS")
	feedtest.Write(t, d, 1, nil)
}

// If the disk is full the record stays whole, and the next write, when there
// is room again, works. No error of these says that it is hopeless.
func TestDiskFull(t *testing.T) {
	inMounts(t, func(t *testing.T) {
		dir := mountTmpfs(t, "size=16k")
		path := filepath.Join(dir, "election.json")
		d := file.NewDecider(path, nil)
		token := feedtest.Write(t, d, 1, nil)
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o644); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
		_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("on a full disk: %v", err)
		}
		feedtest.Reads(t, d, 1)
		if there := names(t, dir); there != "ballast election.json election.json.lock" {
			t.Errorf("the directory has %s", there)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		feedtest.Write(t, d, 2, token)
	})
}

func TestReadOnlyFileSystem(t *testing.T) {
	inMounts(t, func(t *testing.T) {
		dir := mountTmpfs(t, "")
		path := filepath.Join(dir, "election.json")
		d := file.NewDecider(path, nil)
		token := feedtest.Write(t, d, 1, nil)
		mountTmpfsAt(t, dir, "remount,ro")
		_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
		if !errors.Is(err, leaderelection.ErrPermanent) || !errors.Is(err, syscall.EROFS) {
			t.Errorf("on a read-only file system: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for e, err := range d.Changes(ctx) { // an observer can do with it
			if err != nil || e.ElectionNumber != 1 {
				t.Errorf("watching a read-only file system: %+v, %v", e, err)
			}
			break
		}
	})
}

// Who may not write may observe; who may not read is told so.
func TestNoPermission(t *testing.T) {
	asNobody(t, func(t *testing.T, root string) {
		path := filepath.Join(root, "election.json")
		d := file.NewDecider(path, nil)
		token := feedtest.Write(t, d, 1, nil)
		lacks := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, leaderelection.ErrPermanent) || !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", what, err)
			}
		}
		chmod(t, root, 0o555)
		_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
		lacks("writing in a directory without write permission", err)
		feedtest.Reads(t, d, 1)
		chmod(t, path, 0)
		_, err = d.ReadCurrent(t.Context())
		lacks("reading a file without read permission", err)
		chmod(t, path, 0o644)
		chmod(t, root, 0)
		_, err = d.ReadCurrent(t.Context())
		lacks("reading in a directory without search permission", err)
		chmod(t, root, 0o755)
		feedtest.Write(t, d, 2, token)
	})
}

// What a writer that died has left does not stand in the way, wherever it points, and
// is removed.
func TestLeftOvers(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "election.json")
	d := file.NewDecider(path, nil)
	token := feedtest.Write(t, d, 1, nil)
	leftOver := path + ".tmp-" + rand.Text()
	aged(t, leftOver, "half a rec", 0o400, 2*time.Minute)
	inUse := path + ".tmp-" + rand.Text()
	aged(t, inUse, "half a rec", 0o600, 30*time.Second)

	d = file.NewDecider(path, nil) // as a new process does
	token = feedtest.Write(t, d, 2, token)
	if there := names(t, dir); there != "election.json election.json.lock "+filepath.Base(inUse) {
		t.Errorf("the directory has %s", there)
	}

	precious := filepath.Join(dir, "precious")
	aged(t, precious, "precious", 0o600, 0)
	if err := os.Symlink(precious, path+".tmp-"+rand.Text()); err != nil {
		t.Fatal(err)
	}
	feedtest.Write(t, file.NewDecider(path, nil), 3, token)
	if data, err := os.ReadFile(precious); err != nil || string(data) != "precious" {
		t.Errorf("a write went through a symbolic link: %q, %v", data, err)
	}
}

func aged(t *testing.T, path, content string, mode os.FileMode, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
}

// What others keep beside the record is theirs, however alike the name.
func TestOthersFilesAreLeftAlone(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "report")
	digits := rand.Text()
	for _, name := range []string{
		"report.tmpl", "report.tmp", "report.tmp-", "report.tmp.bak", "report.tmp-notes.txt", "report.tmp2.lock",
		"report.tmp-" + strings.ToLower(digits), "report.tmp-" + digits[1:], "report.tmp-" + digits + "A", "report.tmp-" + digits[1:] + "1",
		"other.report.tmp-" + digits, "report2.tmp-" + digits,
	} {
		aged(t, filepath.Join(dir, name), "precious", 0o600, time.Hour)
	}
	old, likeOurs := time.Now().Add(-time.Hour), path+".tmp-"+rand.Text()
	for _, err := range []error{
		os.Mkdir(path+".tmp-dir", 0o700),
		os.Chtimes(path+".tmp-dir", old, old),
		os.Mkdir(likeOurs, 0o700),
		os.Chtimes(likeOurs, old, old),
		os.Symlink("nowhere", path+".tmp-link"),
		os.Symlink("nowhere", path+".tmp-"+rand.Text()),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	was := strings.Fields(names(t, dir))
	feedtest.Write(t, file.NewDecider(path, nil), 1, nil)
	want := append(was, "report", "report.lock")
	slices.Sort(want)
	if there := names(t, dir); there != strings.Join(want, " ") {
		t.Errorf("the first write left\n%s of\n%s", there, strings.Join(want, " "))
	}
}

// A candidate takes a read for the proof that its own write has happened: what it
// reads is on the disk, or a loss of power would give its number to another.
func TestReadsAreOnTheDisk(t *testing.T) {
	path, d := newDecider(t)
	token := feedtest.Write(t, d, 1, nil)
	hangs := make(chan struct{})
	var sync atomic.Pointer[func(string) error]
	set := func(f func(string) error) { sync.Store(&f) }
	real := d.PretendSync(func(dir string) error { return (*sync.Load())(dir) })

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	set(func(string) error { cancel(); <-hangs; return nil })
	if _, err := d.WriteEntry(ctx, feedtest.State(2, token)); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "writing "+path) {
		t.Fatalf("writing on a disk that hangs: %v", err)
	}
	// It is in its place, and others see it, but it is not yet to stay.
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), `"election_number":2`) {
		t.Fatalf("the file is %s, %v", data, err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if e, err := d.ReadCurrent(ctx); !errors.Is(err, context.DeadlineExceeded) || e != nil || !strings.Contains(err.Error(), "reading "+path) {
			t.Errorf("reading on a disk that hangs: %+v, %v", e, err)
		}
	}
	set(func(string) error { return errors.New("the disk is broken") })
	if e, err := d.ReadCurrent(t.Context()); err == nil || e != nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "may not be on the disk") {
		t.Errorf("reading on a broken disk: %+v, %v", e, err)
	}
	close(hangs)
	// Nor is the record that stands in a write's way.
	var lost *leaderelection.LostRaceError
	if _, err := d.WriteEntry(t.Context(), feedtest.State(3, token)); !errors.As(err, &lost) || lost.Current != nil {
		t.Errorf("a lost race on a broken disk: %v, which shows %+v", err, lost.Current)
	}
	var synced atomic.Pointer[string]
	set(func(dir string) error { synced.Store(&dir); return real(dir) })
	if e, err := d.ReadCurrent(t.Context()); err != nil || e.ElectionNumber != 2 || synced.Load() == nil || *synced.Load() != filepath.Dir(path) {
		t.Errorf("reading when the disk is well again: %+v, %v, with a sync of %v", e, err, synced.Load())
	}
}

// A directory that is made is on the disk before anything is confirmed that is in it.
func TestMadeDirectoriesAreOnTheDisk(t *testing.T) {
	root := tempDir(t)
	path := filepath.Join(root, "a", "b", "election.json")
	for attempt, opts := range []*file.Options{{CreateDir: true}, {CreateDir: true}, nil} {
		var synced []string
		fail := attempt == 0
		d := file.NewDecider(path, opts)
		real := d.PretendSync(nil)
		d.PretendSync(func(dir string) error {
			synced = append(synced, dir)
			if fail && dir == root {
				return errors.New("the disk is broken")
			}
			return real(dir)
		})
		e, err := d.ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		number := 1 + 100*uint64(attempt)
		if fail {
			if err := feedtest.WriteError(t, d, number, e.Token); err == nil || !strings.Contains(err.Error(), "the directory "+filepath.Join(root, "a")+" may not be on the disk") {
				t.Errorf("with a broken disk: %v", err)
			}
			fail = false
		}
		token := feedtest.Write(t, d, number, e.Token)
		made := slices.Contains(synced, filepath.Join(root, "a")) && slices.Contains(synced, root)
		if made != (opts != nil) || synced[len(synced)-1] != filepath.Dir(path) {
			t.Errorf("attempt %d, with %+v: these were synced: %v", attempt, opts, synced)
		}
		synced = nil
		feedtest.Write(t, d, number+1, token)
		if slices.Contains(synced, root) {
			t.Errorf("the second write synced %v", synced)
		}
	}
}
