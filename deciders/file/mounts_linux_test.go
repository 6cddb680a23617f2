//go:build go1.25

package file_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
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

// A log that grows beside the record, and files that come there, do not wake a process
// that follows the election: the kernel counts how often it slept. What it does wake
// for is told all the same.
func TestOthersWritesWakeNobody(t *testing.T) {
	stores.Nightly(t, "it counts wake-ups")
	if !isolated() { // alone in a process, whose switches of context are counted
		if err := isolate(t, &syscall.SysProcAttr{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	path, d := newDecider(t)
	token := feedtest.Write(t, d, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan leaderelection.ElectionNumber)
	go func() {
		defer close(told)
		for e, err := range d.Changes(ctx) {
			if err != nil {
				t.Errorf("the feed: %v", err)
				return
			}
			told <- e.ElectionNumber
		}
	}()
	<-told
	const writes = 20_000
	others := exec.CommandContext(t.Context(), "sh", "-c", `i=0; while [ $i -lt 20000 ]; do echo a line >>"$1"; echo new >"$1.$((i % 10))"; i=$((i+1)); done`, "sh", filepath.Join(filepath.Dir(path), "log"))
	before, begin := sleeps(t), time.Now()
	if out, err := others.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	slept := sleeps(t) - before
	t.Logf("%d writes of others in %v: this process slept %d times", 2*writes, time.Since(begin).Round(time.Millisecond), slept)
	if slept > writes/20 {
		t.Errorf("%d writes of others: this process slept %d times", 2*writes, slept)
	}
	feedtest.Write(t, d, 2, token)
	if n := <-told; n != 2 {
		t.Errorf("the feed told of leadership %d", n)
	}
	cancel()
	for range told {
	}
}

// sleeps is how often this process has gone to sleep.
func sleeps(t *testing.T) int64 {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return int64(usage.Nvcsw) // of 32 bits on some machines
}
