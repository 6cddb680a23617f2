//go:build unix

package runner

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
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

// A Holder says its number and until when it may act, and when it is asked to end takes the
// file away, and lets the lease be released.
func TestHoldUntilAskedToEnd(t *testing.T) {
	t.Parallel()
	h := newHeld(t, nil).begin(t)
	comes(t, "leading", h.begun)
	file, err := os.ReadFile(h.c.ExpiryFile)
	if err != nil || !bytes.Equal(file, text(h.view.Get())) || h.out.String() != "7\n" {
		t.Errorf("it says %q, and in the file %q, %v", h.out.String(), file, err)
	}
	if h.GiveUp() {
		t.Error("given up what has begun")
	}
	h.stop()
	comes(t, "the end", h.over)
	if left, _ := filepath.Glob(h.c.ExpiryFile + "*"); len(left) > 0 || len(h.lost) > 0 {
		t.Errorf("left behind: %q; lost: %d", left, len(h.lost))
	}
}

// Who has given up says nothing, and leads nothing.
func TestHoldAfterGivingUp(t *testing.T) {
	t.Parallel()
	h := newHeld(t, nil)
	if !h.GiveUp() {
		t.Error("nothing has begun, and yet it cannot be given up")
	}
	comes(t, "the end", h.begin(t).over)
	if _, err := os.Stat(h.c.ExpiryFile); err == nil || h.out.Len() > 0 {
		t.Errorf("it says %q", h.out.String())
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
