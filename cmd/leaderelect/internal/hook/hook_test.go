//go:build unix

package hook

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/viewtest"
)

// newHook returns a hook whose commands write to the log.
func newHook(begin, end string, change func(*Config)) (*Hook, *logtest.Log) {
	n := &logtest.Log{}
	c := Config{Begin: begin, End: end, Pause: time.Millisecond, Timeout: 30 * time.Second, Grace: time.Second, Span: 24 * time.Hour, Drain: time.Hour, ErrorTimeout: time.Hour,
		Stdout: n, Stderr: io.Discard, Store: "file:x", Leader: "me", Logger: slog.New(slog.DiscardHandler), Resign: func(context.Context) { _, _ = n.Write([]byte("resigned\n")) }}
	if change != nil {
		change(&c)
	}
	return New(c), n
}

// leadership runs one leadership, which goes on until the function is called.
func leadership(t *testing.T, h *Hook, left time.Duration) (end func()) {
	view := viewtest.New(nil, 0)
	view.Set(time.Now().Add(left))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.Elected(ctx, view.TimeView)
	}()
	return func() {
		cancel()
		<-over
	}
}

func await(t *testing.T, n *logtest.Log, want string) {
	t.Helper()
	limit := time.Now().Add(30 * time.Second)
	for !strings.Contains(n.String(), want) {
		if time.Now().After(limit) {
			t.Fatalf("no %q in %q", want, n.String())
		}
		<-time.After(2 * time.Millisecond)
	}
}

// A command that takes too long is killed, with all of its group.
func TestTimeout(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	pid := filepath.Join(t.TempDir(), "pid")
	h, _ := newHook("sleep 600 & echo $! >"+pid+"; wait", "true", func(c *Config) { c.Timeout = 300 * time.Millisecond })
	err := h.begin(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "the begin command: ") || !strings.Contains(err.Error(), "not over after 300ms") {
		t.Errorf("%v", err)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Now().Add(30 * time.Second)
	for !errors.Is(syscall.Kill(id, 0), syscall.ESRCH) { // until who has inherited it awaits it
		if time.Now().After(limit) {
			t.Fatalf("process %d is alive", id)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// A leadership that is not extended is ended the grace before the view ends, and given up.
func TestNotExtended(t *testing.T) {
	h, n := newHook("echo begin", "echo end", func(c *Config) { c.Grace = 10 * time.Second })
	end := leadership(t, h, 11*time.Second)
	await(t, n, "resigned")
	end()
	if got := n.String(); got != "begin\nend\nresigned\n" {
		t.Errorf("%q", got)
	}
}

// A begin command that is interrupted is asked to end first, with all of its group,
// and then killed; the end command follows.
func TestBeginInterrupted(t *testing.T) {
	h, n := newHook(`trap "echo asked; exit 1" TERM; echo up; while :; do sleep 0.02; done`, "echo end", nil)
	end := leadership(t, h, time.Hour)
	await(t, n, "up")
	end()
	if got := n.String(); got != "up\nasked\nend\n" {
		t.Errorf("%q", got)
	}
	h, n = newHook(`trap "" TERM; echo up; while :; do sleep 0.02; done`, "echo end", nil)
	end = leadership(t, h, time.Hour)
	await(t, n, "up")
	end()
	if got := n.String(); got != "up\nend\n" {
		t.Errorf("%q", got)
	}
}

// An end command that hangs is given up when somebody asks once more, or when all
// its time is over: in the command as in the pause before another attempt.
func TestEndGivenUp(t *testing.T) {
	const hangs, fails = `echo up; exec sleep 600`, `echo up; exit 1`
	pauses := func(c *Config) { c.Pause = time.Hour }
	for name, c := range map[string]struct {
		end    string
		change func(*Config)
		ask    bool
		want   string
	}{
		"asked, in the command": {hangs, nil, true, "asked to end once more"},
		"asked, in a pause":     {fails, pauses, true, "asked to end once more"},
		"late, in the command":  {hangs, func(c *Config) { c.Drain = 300 * time.Millisecond }, false, "not over after 300ms in all"},
		"late, in a pause":      {fails, func(c *Config) { pauses(c); c.Drain = 300 * time.Millisecond }, false, "not over after 300ms in all"},
	} {
		h, n := newHook("true", c.end, c.change)
		over := make(chan error, 1)
		go func() { over <- h.end(t.Context(), 1) }()
		await(t, n, "up")
		if c.ask {
			h.Interrupt()
		}
		select {
		case err := <-over:
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "may still be on") || h.Failed() == nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: it goes on", name)
		}
		if got := strings.Count(n.String(), "up"); got != 1 {
			t.Errorf("%s: %d attempts", name, got)
		}
	}
}
