//go:build (linux || darwin) && go1.25

package file_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

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
