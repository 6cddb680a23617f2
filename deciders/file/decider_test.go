//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(file.Open)
	decidertest.Main(func(ctx context.Context, address string) (leaderelection.RaceDecider, error) {
		return feedtest.Open(ctx, file.Open, address)
	})
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

// newDecider is an election in a directory of its own.
func newDecider(t testing.TB) (path string, d *file.Decider) {
	t.Helper()
	path = filepath.Join(tempDir(t), "election.json")
	return path, file.NewDecider(path, nil)
}

func newElection(t testing.TB) func() leaderelection.RaceDecider {
	path, _ := newDecider(t)
	return func() leaderelection.RaceDecider { return file.NewDecider(path, nil) }
}

func TestConformance(t *testing.T) {
	o := decidertest.Options{Address: func(d leaderelection.RaceDecider) string { return "file://" + d.(*file.Decider).String() }}
	decidertest.Run(t, newElection, &o)
}

// What lies on the disk is the record as text, one line, and an empty lock file.
func TestWhatIsWritten(t *testing.T) {
	dir := tempDir(t)
	path := filepath.Join(dir, "election.json")
	feedtest.Write(t, file.NewDecider(path, nil), 1, nil)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(data); !strings.HasPrefix(s, `{"leaderelection":1,"leader_id":"a",`) || strings.Count(s, "\n") != 1 || !strings.HasSuffix(s, "}\n") {
		t.Errorf("the file is %q", s)
	}
	if there := names(t, dir); there != "election.json election.json.lock" {
		t.Errorf("the directory has %s", there)
	}
}

func names(t testing.TB, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range list {
		all = append(all, f.Name())
	}
	return strings.Join(all, " ")
}

// A record's permissions are those of Options.Mode, and later those that
// somebody gave it.
func TestModes(t *testing.T) {
	path := filepath.Join(tempDir(t), "a", "b", "election.json")
	d := file.NewDecider(path, &file.Options{CreateDir: true, Mode: 0o600})
	e, err := d.ReadCurrent(t.Context())
	if err != nil || e.ElectionNumber != leaderelection.NoElections {
		t.Fatalf("with CreateDir, where there is no directory yet: %+v, %v", e, err)
	}
	token := feedtest.Write(t, d, 1, e.Token)
	for name, want := range map[string]os.FileMode{path: 0o600, path + ".lock": 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if err := os.Chmod(path, 0o606); err != nil {
		t.Fatal(err)
	}
	feedtest.Write(t, d, 2, token)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o606 {
		t.Errorf("after a chmod 606 and a write: %v, %v", info.Mode(), err)
	}
}

func TestCommitTSIsTheFilesTime(t *testing.T) {
	path, d := newDecider(t)
	written := feedtest.Write(t, d, 1, nil).CommitTS()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if read := e.Token.CommitTS(); !read.Equal(written) || !read.Equal(info.ModTime().Truncate(10*time.Millisecond)) {
		t.Errorf("written %v, read %v, the file's %v", written, read, info.ModTime())
	}
}

func TestOpen(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	for address, want := range map[string]string{
		"file://" + dir + "/e.json":                         dir + "/e.json",
		"file://localhost" + dir + "/e.json":                dir + "/e.json",
		"file://" + dir + "/with%20space.json":              dir + "/with space.json",
		"file:../e%25.json":                                 filepath.Dir(wd) + "/e%.json",
		"file://" + dir + "/x/e.json?create=true&mode=0600": dir + "/x/e.json",
		"file:e.json?allow_network=true&create=false":       wd + "/e.json",
		"file:":                                  "names no file",
		"file://" + dir + "/":                    "names no file",
		"file://elsewhere/e.json":                "on this machine",
		"file:///e.json#x":                       "fragment",
		"file://me@localhost/e.json":             "user",
		"s3://bucket/e.json":                     "scheme",
		"file:///e.json?create=perhaps":          `"create"`,
		"file:///e.json?mode=rw":                 `"rw" is not an octal mode`,
		"file:///e.json?mode=01777":              "not an octal mode",
		"file:///e.json?creat=true":              `no parameter "creat"; there are allow_network, create, mode`,
		"file:///e.json?create=true&create=true": `"create" is given 2 times`,
		"file:///e.json?a=%zz":                   "invalid URL escape",
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		d, err := file.Open(t.Context(), u)
		if err != nil {
			feedtest.Permanent(t, err, want)
			continue
		}
		// Where it points is told by the place in its errors.
		d.PretendNetwork("NFS")
		_, err = d.ReadCurrent(t.Context())
		opened := err == nil && strings.Contains(address, "allow_network") || err != nil && strings.Contains(err.Error(), "reading "+want+":")
		if !opened {
			t.Errorf("%s: opened, reading says %v; want %s", address, err, want)
		}
	}
}

// A write waits for the lock as long as its ctx allows, and not longer.
func TestLockIsWaitedForWithinCtx(t *testing.T) {
	path, d := newDecider(t)
	token := feedtest.Write(t, d, 1, nil)
	unlock := hold(t, path)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := d.WriteEntry(ctx, feedtest.State(2, token))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) {
		t.Fatalf("with the lock held: %v", err)
	}
	feedtest.Reads(t, d, 1) // which takes no lock
	written := make(chan error)
	go func() {
		_, err := d.WriteEntry(t.Context(), feedtest.State(3, token))
		written <- err
	}()
	waits := time.NewTimer(30 * time.Millisecond)
	defer waits.Stop()
	select {
	case err := <-written:
		t.Fatalf("written while the lock was held: %v", err)
	case <-waits.C:
	}
	unlock()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestDeletedRecordIsALostRace(t *testing.T) {
	path, d := newDecider(t)
	token := feedtest.Write(t, d, 1, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(2, token))
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Current == nil || lost.Current.ElectionNumber != 0 || lost.Place != path {
		t.Errorf("%v", err)
	}
}

// hold takes the lock on the election at path as another process would, and
// returns what gives it back.
func hold(t *testing.T, path string) (unlock func()) {
	t.Helper()
	f, err := os.Open(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// againEnv marks a test that runs once more in a process of its own.
const againEnv = "FILE_TEST_AGAIN"

// isolated is whether this is that process.
func isolated() bool { return os.Getenv(againEnv) != "" }

// isolate runs the test t once more, alone in a process of its own.
func isolate(t *testing.T, attr *syscall.SysProcAttr, env ...string) error {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(cmd.Environ(), againEnv+"=1")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if len(out) > 0 {
		t.Logf("%s", out)
	}
	return err
}

// asNobody runs f as a user whom permissions bind, with a directory of its own:
// root may do everything.
func asNobody(t *testing.T, f func(t *testing.T, dir string)) {
	t.Helper()
	const nobody = 65534
	switch {
	case isolated():
		dir := os.Getenv("FILE_TEST_DIR")
		for _, err := range []error{syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		f(t, dir)
	case os.Geteuid() != 0:
		f(t, tempDir(t))
	default:
		// Not t.TempDir: nobody may not search its parents.
		dir, err := os.MkdirTemp("", "election")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		if err := isolate(t, nil, "FILE_TEST_DIR="+dir); err != nil {
			t.Fatal(err)
		}
	}
}

// tempDir is t.TempDir, whose end waits for writes that were given up: a file
// operation cannot be interrupted, and such a one may still make a temporary file.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leaderelection-file")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for until := time.Now().Add(10 * time.Second); ; {
			err := os.RemoveAll(dir)
			if err == nil {
				return
			}
			if time.Now().After(until) {
				t.Errorf("removing what the test made: %v", err)
				return
			}
		}
	})
	return dir
}
