//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/runner"
)

// Which signals end the program, by which cause, and which do not.
func TestSignals(t *testing.T) {
	for s, ends := range map[syscall.Signal]bool{
		syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGQUIT: true, syscall.SIGHUP: true,
		syscall.SIGPIPE: false, syscall.SIGXFSZ: false,
	} {
		t.Run(s.String(), func(t *testing.T) {
			ends := ends && !signal.Ignored(s) // as under nohup
			a := &app{}
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := a.signals(cancel, nil) // without a command every HUP ends it
			defer stop()
			must(t, syscall.Kill(os.Getpid(), s))
			if !ends {
				// One that does end it is dealt with after this one.
				must(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
			}
			select {
			case <-ctx.Done():
			case <-time.After(30 * time.Second):
				t.Fatal("nothing has ended")
			}
			var by *signalled
			if !errors.As(context.Cause(ctx), &by) || !errors.Is(by, runner.ErrStopped) {
				t.Fatalf("the cause is %v", context.Cause(ctx))
			}
			if want := map[bool]syscall.Signal{true: s, false: syscall.SIGTERM}[ends]; by.signal != want {
				t.Errorf("ended by %v, want %v", by.signal, want)
			}
			if ended(context.Cause(ctx)) != nil {
				t.Error("an end that was asked for is an error")
			}
		})
	}
}

// What a signal that is ignored (nohup) would do, is not done.
func TestIgnoredSignal(t *testing.T) {
	if os.Getenv("IGNORES") == "" {
		t.Setenv("IGNORES", "yes")
		self, err := os.Executable()
		must(t, err)
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", `trap "" HUP; exec "$0" -test.run=^TestIgnoredSignal$`, self},
			&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		must(t, err)
		if s, err := p.Wait(); err != nil || !s.Success() {
			t.Errorf("%v, %v", s, err)
		}
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer (&app{}).signals(cancel, nil)()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		must(t, syscall.Kill(os.Getpid(), s))
	}
	<-ctx.Done()
	if by := (*signalled)(nil); !errors.As(context.Cause(ctx), &by) || by.signal != syscall.SIGTERM {
		t.Errorf("ended by %v", context.Cause(ctx))
	}
}

// In systemd's journal a line has the priority of its level; elsewhere, even if only the
// variable is inherited, it has none.
func TestJournal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer file.Close()
	info, err := file.Stat()
	must(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	for stream, want := range map[string]string{
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino):   "<7> <6> <4> <3> <4> <3>",
		fmt.Sprintf("%d:%d", stat.Dev, stat.Ino+1): "",
		"": "",
	} {
		for _, format := range []string{"text", "json"} {
			t.Setenv("JOURNAL_STREAM", stream)
			must(t, file.Truncate(0))
			if _, err := file.Seek(0, 0); err != nil {
				t.Fatal(err)
			}
			a := &app{errOut: file}
			a.common.logFormat, a.common.logLevel = format, "debug"
			log := a.logger()
			log.Debug("d")
			log.Info("i")
			log.Warn("w")
			log.Error("e")
			log.With("a", 1).WithGroup("g").Warn("w")
			a.complain("it failed")
			a.log().Flush(time.Minute)
			text, err := os.ReadFile(file.Name())
			must(t, err)
			var got []string
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "<") {
					got = append(got, line[:3])
				}
			}
			if strings.Join(got, " ") != want || strings.Count(string(text), "\n") != 6 {
				t.Errorf("%s, %q: %q, want %s", format, stream, text, want)
			}
		}
	}
}
