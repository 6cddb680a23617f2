//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// world is one run: a store on its hosts, candidates on theirs, and the registers.
type world struct {
	settings
	dir        string
	lifelines  [2]string  // the candidates are on two machines, as far as their kernels can tell
	rand       *rand.Rand // of the schedule; one goroutine at a time
	net        *network
	registers  *host
	candidates []*person
	store      *cluster
	log        io.Writer
	leader     atomic.Pointer[person]
	begun      time.Time
	mu         sync.Mutex
	faults     map[string]int
	hits       int // how many faults have befallen a leaderelect that led
}

// cluster is a store's servers.
type cluster struct {
	nodes []*host
	// start starts a server that was killed.
	start func(node *host) error
	// url is what candidates open.
	url string
	// failover promotes another server, in a store that does not do it by itself. It may
	// be nil.
	failover func() error
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(w.log, "%7.2f  %s\n", time.Since(w.begun).Seconds(), fmt.Sprintf(format, args...))
}

// server starts a program on a host, as a server that stays.
func (w *world) server(h *host, args ...string) error { return w.serverIn("", nil, h, args...) }

func (w *world) serverIn(dir string, env []string, h *host, args ...string) error {
	c := exec.Command(args[0], args[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	log, err := os.OpenFile(filepath.Join(w.dir, h.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	c.Stdout, c.Stderr = log, log
	if err := h.onDisk(c); err != nil {
		return err
	}
	go func() { _ = c.Wait() }() // it is killed
	return nil
}

// build builds one of internal/test/stores/servers, and returns the program.
func (w *world) build(name string) (string, error) {
	out := filepath.Join(w.dir, name)
	c := exec.Command("go", "build", "-o", out, ".")
	c.Dir = filepath.Join(w.root, "internal", "test", "stores", "servers", name)
	c.Env = append(os.Environ(), "GOWORK=off")
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building internal/test/stores/servers/%s: %w: %s", name, err, text)
	}
	return out, nil
}

// within is a random duration from a to b.
func (w *world) within(a, b time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a + time.Duration(w.rand.Int64N(int64(b-a)))
}

func (w *world) intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

// offset is that of a candidate's clock: within what is promised, or far beyond, ahead or
// behind.
func (w *world) offset() time.Duration {
	s := w.skew - w.skew/20
	if !w.beyond {
		return w.within(-s, s)
	}
	return time.Duration(1-2*w.intn(2)) * w.term
}
