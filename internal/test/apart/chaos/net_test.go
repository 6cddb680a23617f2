//go:build linux && chaos

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test binary is the program, too: what a host runs is started as that.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What is sent passes through the switch, and goes by its rules, in each direction by
// itself.
func TestNetwork(t *testing.T) {
	n := newNetwork()
	a, err1 := n.add("a")
	b, err2 := n.add("b")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A listener on b, which answers each connection.
	server := exec.Command(self, "registers", b.addr)
	if err := b.start(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.kill(); _ = server.Wait() })
	ask := func() error { return a.run(exec.Command(self, "dump", b.addr)) }
	if err := until("the registers", ask); err != nil {
		t.Fatal(err)
	}
	for _, cut := range [][2]*host{{a, b}, {b, a}} {
		n.set(cut[:1], cut[1:], false, rule{cut: true})
		if err := ask(); err == nil || !strings.Contains(err.Error(), "deadline") && !strings.Contains(err.Error(), "i/o timeout") {
			t.Errorf("from %s to %s nothing passes, and yet: %v", cut[0].name, cut[1].name, err)
		}
		n.heal()
		if err := ask(); err != nil {
			t.Error(err)
		}
	}
	n.set([]*host{a}, []*host{b}, true, rule{delay: 100 * time.Millisecond})
	begin := time.Now()
	if err := ask(); err != nil || time.Since(begin) < 400*time.Millisecond { // there and back, to connect and to ask
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	n.set([]*host{a}, []*host{b}, true, rule{loss: 0.2})
	if err := until("with lost packets", ask); err != nil {
		t.Error(err)
	}
	if len(b.processes()) != 1 {
		t.Errorf("on b run %v", b.processes())
	}
}

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
