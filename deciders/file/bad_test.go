//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/record"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func whole(t testing.TB) string {
	t.Helper()
	data, err := record.Marshal(entry(7, 3, nil))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What is not a record is told, and left as it is.
func TestForeignContent(t *testing.T) {
	good := whole(t)
	for name, c := range map[string]struct{ content, why string }{
		"empty":           {"", "empty"},
		"not JSON":        {"leader=a\n", "not a record of this library"},
		"other JSON":      {`{"leader":"a"}`, "not a record of this library"},
		"cut short":       {good[:len(good)/2], "not one whole JSON object"},
		"two records":     {good + good, "follow the JSON object"},
		"hand-edited":     {strings.Replace(good, `"election_number":7`, `"election_number":"seven"`, 1), "election_number"},
		"newer version":   {strings.Replace(good, `"leaderelection":1`, `"leaderelection":2`, 1), "upgrade"},
		"unknown field":   {strings.Replace(good, "{", `{"must_understand":["colour"],"colour":"red",`, 1), "colour"},
		"large":           {good + strings.Repeat(" ", record.MaxSize), "bytes"},
		"binary":          {"\x00\xff\xfe", "UTF-8"},
		"NUL after crash": {strings.Repeat("\x00", len(good)), "JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(tempDir(t), "election.json")
			if err := os.WriteFile(path, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			d := file.NewDecider(path, nil)
			feedtest.Foreign(t, d, path, c.why)
			if name == "not JSON" || name == "other JSON" { // another's: an operator has mistaken the place
				if err := leaderelection.Reset(t.Context(), d, 7, true); !errors.Is(err, record.ErrForeign) {
					t.Errorf("Reset: %v", err)
				}
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != c.content {
				t.Errorf("the file was changed to %q, %v", data, err)
			}
		})
	}
}

// A record that a person edited, and that is still one, is a version like any
// other: the leader's next write loses, and what it reads is what was edited.
func TestHandEditedRecord(t *testing.T) {
	path := filepath.Join(tempDir(t), "election.json")
	d := file.NewDecider(path, nil)
	token := write(t, d, entry(7, 3, nil))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), `"extension":3`, `"extension": 4`, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	var lost *leaderelection.LostRaceError
	_, err = d.WriteEntry(t.Context(), entry(7, 4, token))
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.Extension != 4 {
		t.Fatalf("%v", err)
	}
	write(t, d, entry(7, 5, lost.Current.Token))
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
	record := whole(t)
	for _, err := range []error{
		os.WriteFile(at("target"), []byte(record), 0o644),
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
		_, err := file.NewDecider(at(lock), nil).WriteEntry(t.Context(), entry(1, 0, nil))
		feedtest.Permanent(t, err, why, at(lock)+".lock")
	}
	for name, want := range map[string]string{"target": record, "plain": "plain"} {
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
	write(t, d, entry(1, 0, nil))
}

// If the disk is full the record stays whole, and the next write, when there
// is room again, works. No error of these says that it is hopeless.
func TestDiskFull(t *testing.T) {
	inMounts(t, func(t *testing.T) {
		dir := mountTmpfs(t, "size=16k")
		path := filepath.Join(dir, "election.json")
		d := file.NewDecider(path, nil)
		token := write(t, d, entry(1, 0, nil))
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o644); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling the disk: %v", err)
		}
		_, err := d.WriteEntry(t.Context(), entry(1, 1, token))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) || !strings.Contains(err.Error(), "make room") {
			t.Errorf("on a full disk: %v", err)
		}
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.Extension != 0 {
			t.Errorf("after that: %+v, %v", e, err)
		}
		if there := names(t, dir); there != "ballast election.json election.json.lock" {
			t.Errorf("the directory has %s", there)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		write(t, d, entry(1, 1, token))
	})
}

func TestReadOnlyFileSystem(t *testing.T) {
	inMounts(t, func(t *testing.T) {
		dir := mountTmpfs(t, "")
		path := filepath.Join(dir, "election.json")
		d := file.NewDecider(path, nil)
		token := write(t, d, entry(1, 0, nil))
		mountTmpfsAt(t, dir, "remount,ro")
		_, err := d.WriteEntry(t.Context(), entry(1, 1, token))
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
		token := write(t, d, entry(1, 0, nil))
		lacks := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, leaderelection.ErrPermanent) || !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v", what, err)
			}
		}
		chmod(t, root, 0o555)
		_, err := d.WriteEntry(t.Context(), entry(1, 1, token))
		lacks("writing in a directory without write permission", err)
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.Extension != 0 {
			t.Errorf("reading there: %+v, %v", e, err)
		}
		chmod(t, path, 0)
		_, err = d.ReadCurrent(t.Context())
		lacks("reading a file without read permission", err)
		chmod(t, path, 0o644)
		chmod(t, root, 0)
		_, err = d.ReadCurrent(t.Context())
		lacks("reading in a directory without search permission", err)
		chmod(t, root, 0o755)
		write(t, d, entry(1, 1, token))
	})
}
