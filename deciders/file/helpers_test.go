//go:build linux || darwin

package file_test

import (
	"os"
	"syscall"
	"testing"
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

const roleEnv = "FILE_TEST_ROLE"

func play(role string) int { return 1 }
