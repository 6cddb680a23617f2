//go:build unix

package runner

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// held is one leadership of a Holder, and what came of it.
type held struct {
	*Holder
	view   *viewtest.View
	out    bytes.Buffer // until begun
	cancel context.CancelCauseFunc
	begun  chan struct{}
	stop   context.CancelFunc // asks it to end
	failed chan error
	lost   chan error
	over   chan struct{} // Elected has returned
}

// newHeld returns one whose view lasts a minute, and that has not begun.
func newHeld(t *testing.T, change func(*HolderConfig)) *held {
	t.Helper()
	h := &held{view: viewtest.New(nil, 7), begun: make(chan struct{}), failed: make(chan error, 1), lost: make(chan error, 1), over: make(chan struct{})}
	h.view.Set(time.Now().Add(time.Minute))
	stopped, stop := context.WithCancel(t.Context())
	h.stop = stop
	c := HolderConfig{
		Stopped: stopped,
		Times:   Times{Span: time.Minute, Margin: time.Second, Grace: time.Second}, ExpiryFile: filepath.Join(t.TempDir(), "expiry"),
		Out: &h.out, Logger: slog.New(slog.DiscardHandler),
		Begun: func() { close(h.begun) }, Failed: func(err error) { h.failed <- err }, Lost: func(err error) { h.lost <- err },
	}
	if change != nil {
		change(&c)
	}
	h.Holder = NewHolder(c)
	return h
}

func (h *held) begin(t *testing.T) *held {
	ctx, cancel := context.WithCancelCause(t.Context())
	h.cancel = cancel
	go func() {
		defer close(h.over)
		h.Elected(ctx, h.view.TimeView)
	}()
	return h
}

// comes waits for c.
func comes[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not within %v", what, patience)
	}
	return v
}

// If leadership is lost, or the lease is not extended until the grace before its end, that is
// said, and Elected does not return: the work may go on for a moment, and the lease runs out.
func TestHoldThatIsLost(t *testing.T) {
	t.Parallel()
	h := newHeld(t, nil).begin(t)
	comes(t, "leading", h.begun)
	h.cancel(leaderelection.ErrOusted)
	if err := comes(t, "the loss", h.lost); !errors.Is(err, leaderelection.ErrOusted) {
		t.Error(err)
	}
	late := newHeld(t, func(c *HolderConfig) { c.Times.Grace = time.Minute - c.Times.Margin - 200*time.Millisecond }).begin(t)
	comes(t, "the loss", late.lost)
	if !late.view.ValueInFuture() {
		t.Error("no grace was left")
	}
	for _, h := range []*held{h, late} {
		select {
		case <-h.over:
			t.Error("Elected has returned, so the lease is released")
		default:
		}
	}
}

// An extension is told in the file at once, and puts off what is to be done without it.
func TestHoldIsExtended(t *testing.T) {
	t.Parallel()
	h := newHeld(t, nil).begin(t)
	comes(t, "leading", h.begun)
	h.view.Set(time.Now().Add(time.Hour))
	h.Extended(leaderelection.ViewExtended{})
	want := text(h.view.Get())
	for limit := time.Now().Add(patience); ; <-time.After(2 * time.Millisecond) {
		if file, err := os.ReadFile(h.c.ExpiryFile); err == nil && bytes.Equal(file, want) {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the file does not say so")
		}
	}
	h.stop()
	comes(t, "the end", h.over)
}

// Who cannot say that it leads does not lead.
func TestHoldThatCannotBeSaid(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*HolderConfig){
		"no reader": func(c *HolderConfig) { c.Out = closedPipe(t) },
		"no file":   func(c *HolderConfig) { c.ExpiryFile = "/no/such/dir/expiry" },
	} {
		h := newHeld(t, change).begin(t)
		if err := comes(t, name, h.failed); err == nil {
			t.Errorf("%s: no error", name)
		}
		comes(t, "the end", h.over)
		select {
		case <-h.begun:
			t.Errorf("%s: it leads", name)
		default:
		}
	}
}

// closedPipe is a file that takes nothing.
func closedPipe(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Open(os.DevNull) // to be read only
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

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
	until, err := os.ReadFile(r.c.ExpiryFile)
	must(t, err)
	if text, _ := os.ReadFile(started); !bytes.HasSuffix(text, bytes.SplitAfter(until, []byte("\n"))[0]) {
		t.Errorf("it was started by the time of the first start: %s", text)
	}
	hangs(t, &r.file.box)
	r.cancel(ErrStopped)
	comes(t, "the end", r.over)
}

// While the expiry file cannot be written, the command goes on with the lease, by a time that is too early.
func TestExpiryFileCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "full")
	must(t, os.Mkdir(dir, 0o755))
	r := newTrial(t, func(c *Config) { c.ExpiryFile = filepath.Join(dir, "expiry") }, "sleep", "600").begin(t)
	r.said(t, "the command is started")
	extend := func(by time.Duration) { r.view.Set(time.Now().Add(by)); r.Extended(leaderelection.ViewExtended{}) }
	must(t, os.Rename(dir, dir+".gone"))
	extend(2 * time.Minute)
	r.said(t, "the expiry file cannot be written: the time in it is too early")
	if slices.Contains(r.lines, "the command has ended") {
		t.Errorf("%q", r.lines)
	}
	must(t, os.Rename(dir+".gone", dir))
	extend(3 * time.Minute)
	r.until(t, "the new end in the file", func() bool { now, _ := os.ReadFile(r.c.ExpiryFile); return bytes.Equal(now, text(r.view.Get())) })
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
