//go:build unix

package runner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
)

// hangs has what box does next hang until the function is called, as a frozen file system does.
func hangs(t *testing.T, box *outbox.Box) (flows func()) {
	t.Helper()
	frozen := make(chan struct{})
	if !box.Put(1000, func() { <-frozen }) {
		t.Fatal("the box is full")
	}
	flows = sync.OnceFunc(func() { close(frozen) })
	t.Cleanup(flows)
	return flows
}

// While the expiry file's file system hangs, a command that runs goes on with the lease, by a time that is
// too early; one that has ended is not started again before the file says the right time; and a signal
// ends the command.
func TestExpiryFileHangs(t *testing.T) {
	t.Parallel()
	started := filepath.Join(t.TempDir(), "started")
	count := func() int { text, _ := os.ReadFile(started); return bytes.Count(text, []byte("\n")) }
	endless := func(c *Config) { c.Resign = nil } // it is started again and again
	r := newTrial(t, endless, "sh", "-c", `head -n 1 $LEADERELECT_EXPIRY_FILE >>"$0"; exec sleep 600`, started)
	r.file.patience = 20 * time.Millisecond
	r.begin(t)
	r.until(t, "the command", func() bool { return count() == 1 })
	old, _ := os.ReadFile(r.c.ExpiryFile)
	flows := hangs(t, &r.file.box)
	for i := range 3 {
		r.view.Set(time.Now().Add(time.Minute + time.Duration(i+1)*time.Second))
		r.Extended(leaderelection.ViewExtended{})
		r.until(t, "the extension", func() bool { return r.file.newest.Load().Equal(r.view.Get()) })
	}
	r.said(t, "the expiry file is not written, since its file system is slow, or hangs: the time in it is too early")
	if now, err := os.ReadFile(r.c.ExpiryFile); err != nil || !bytes.Equal(now, old) || count() != 1 {
		t.Errorf("started %d times; the file says %q, %v", count(), now, err)
	}
	r.Kill()
	r.said(t, "the command did not run")
	if count() != 1 {
		t.Errorf("started %d times, without the file", count())
	}
	flows()
	r.until(t, "the command again", func() bool { return count() == 2 })
	if text, _ := os.ReadFile(started); !strings.HasSuffix(string(text), string(bytes.SplitAfter(mustRead(t, r.c.ExpiryFile), []byte("\n"))[0])) {
		t.Errorf("it was started by the time of the first start: %s", text)
	}
	hangs(t, &r.file.box)
	r.cancel(ErrStopped)
	comes(t, "the end", r.over)
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A candidate whose expiry file hangs when it is elected starts no command, says why, and lets another
// lead; asked to end meanwhile, it does.
func TestExpiryFileHangsFromTheStart(t *testing.T) {
	t.Parallel()
	r := newTrial(t, func(c *Config) { c.OnFailure, c.Delay = StepDown, time.Hour }, "true")
	r.file.patience = 20 * time.Millisecond
	hangs(t, &r.file.box)
	r.begin(t)
	comes(t, "the end", r.over)
	if err := r.Healthy(t.Context()); r.resigned != 1 || !errors.Is(err, ErrStandingDown) {
		t.Errorf("resigned %d times, and stands down: %v", r.resigned, err)
	}
	stopped := newTrial(t, func(c *Config) { c.Once = true }, "true")
	hangs(t, &stopped.file.box)
	stopped.begin(t).cancel(ErrStopped)
	comes(t, "the end", stopped.over)
	if len(stopped.finished) > 0 { // so that the exit code says that nothing has run
		t.Errorf("%q", stopped.finished)
	}
}

// stuck is a reader that reads the first lines only.
type stuck struct {
	mu    sync.Mutex
	lines int
	text  bytes.Buffer
	hangs chan struct{}
}

func (s *stuck) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines == 0 {
		<-s.hangs
		return 0, os.ErrClosed
	}
	s.lines--
	return s.text.Write(line)
}

func newStuck(t *testing.T, lines int) *stuck {
	s := &stuck{lines: lines, hangs: make(chan struct{})}
	t.Cleanup(func() { close(s.hangs) })
	return s
}

// A Holder whose token, or whose file, is not taken does not lead for nobody. It ends while its view has
// the grace left, and does not release a lease of which somebody may learn yet.
func TestHoldThatNobodyReads(t *testing.T) {
	t.Parallel()
	brief := func(c *HolderConfig) { c.Times.Grace = time.Minute - c.Times.Margin - 200*time.Millisecond }
	for name, block := range map[string]func(*held){
		"the token": func(h *held) { h.Holder.c.Out = newStuck(t, 0) },
		"the file":  func(h *held) { hangs(t, &h.file.box) },
	} {
		h := newHeld(t, brief)
		block(h)
		h.begin(t)
		if err := comes(t, name, h.lost); !errors.Is(err, outbox.ErrHangs) || !h.view.ValueInFuture() {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-h.over:
			t.Errorf("%s: Elected has returned, so the lease is released", name)
		case <-h.begun:
			t.Errorf("%s: it has said that it leads", name)
		default:
		}
	}
	h := newHeld(t, nil)
	h.Holder.c.Out = newStuck(t, 0)
	h.begin(t)
	h.stop()
	comes(t, "the end", h.over)
	if len(h.lost) > 0 {
		t.Error(<-h.lost)
	}
}

// Nor does one wait for a reader when it is to hand over.
func TestHoldHandsOverToNobody(t *testing.T) {
	t.Parallel()
	h := newHeld(t, func(c *HolderConfig) { c.Waits, c.Out = true, newStuck(t, 1) }).begin(t)
	comes(t, "leading", h.begun)
	h.cancel(errTest)
	h.stop()
	comes(t, "the end", h.over)
	late := newHeld(t, func(c *HolderConfig) {
		c.Waits, c.Out, c.Times.Grace = true, newStuck(t, 1), time.Minute-c.Times.Margin-200*time.Millisecond
	}).begin(t)
	comes(t, "leading", late.begun)
	late.cancel(errTest)
	if err := comes(t, "the loss", late.lost); !errors.Is(err, errTest) {
		t.Error(err)
	}
}

// A lease is not released while a file may say that somebody may act. It runs out.
func TestHoldWhoseFileHangs(t *testing.T) {
	t.Parallel()
	h := newHeld(t, nil)
	h.file.patience = 20 * time.Millisecond
	h.begin(t)
	comes(t, "leading", h.begun)
	hangs(t, &h.file.box)
	h.view.Set(time.Now().Add(time.Hour))
	h.Extended(leaderelection.ViewExtended{})
	h.stop()
	if err := comes(t, "the end", h.lost); !errors.Is(err, outbox.ErrHangs) || !strings.Contains(err.Error(), "not released") {
		t.Error(err)
	}
}

// said waits until the log has a line.
func (r *trial) said(t *testing.T, line string) {
	t.Helper()
	r.until(t, line, func() bool { return slices.Contains(r.lines, line) })
}
