//go:build go1.25

package file_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// inMounts runs f in a process that may mount file systems, seen by nobody else.
func inMounts(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if isolated() {
		f(t)
		return
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := isolate(t, attr)
	if errors.Is(err, syscall.EPERM) {
		stores.Missing(t, "this system does not allow a user "+err.Error()+" to have mounts of its own: run the test as root")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mountTmpfs mounts an empty file system in memory, and returns where.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	mountTmpfsAt(t, dir, options)
	t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
	return dir
}

func mountTmpfsAt(t *testing.T, dir, options string) {
	t.Helper()
	var flags uintptr
	if options == "remount,ro" {
		flags, options = syscall.MS_REMOUNT|syscall.MS_RDONLY, ""
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Fatalf("mounting a tmpfs: %v", err)
	}
}
