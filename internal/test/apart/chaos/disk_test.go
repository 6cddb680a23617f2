//go:build linux && chaos

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A program that waits for its disk waits as long as the disk is told to take, whatever
// the program is; one that is killed meanwhile is gone.
func TestDisk(t *testing.T) {
	h, err := newNetwork().add("h")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	sync := func() *exec.Cmd {
		c := exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1", "count=1", "conv=fsync", "status=none")
		if err := h.onDisk(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := sync().Wait(); err != nil || h.disk.made() != 1 {
		t.Fatalf("%v; %d calls", err, h.disk.made())
	}
	h.disk.slow(300 * time.Millisecond)
	begin := time.Now()
	if err := sync().Wait(); err != nil || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	h.disk.mend()
	h.disk.stick()
	c := sync()
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	if err := until("a call", func() error {
		if h.disk.made() != 3 {
			return exec.ErrNotFound
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		t.Fatalf("the disk is stuck, and yet %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	h.disk.mend()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.disk.stick()
	c = sync()
	h.kill()
	if err := c.Wait(); err == nil {
		t.Error("killed while its disk was stuck, and ended well")
	}
	h.disk.mend()
}
