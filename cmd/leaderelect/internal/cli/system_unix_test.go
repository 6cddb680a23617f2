//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/notify"
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

// hearing has a notifier, and what it tells as it comes.
func hearing(t *testing.T) (n *notify.Notifier, hears func(want ...string)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	if n, err = notify.Open(socket, nil, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	return n, func(want ...string) {
		t.Helper()
		for _, w := range append(want, "STATUS=so far") {
			if w == "STATUS=so far" {
				n.Status("so far") // nothing else was told before
			}
			must(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
			b := make([]byte, 4096)
			k, err := c.Read(b)
			if err != nil || string(b[:k]) != w {
				t.Fatalf("told was %q, %v, want %q", b[:k], err, w)
			}
		}
	}
}

// The supervisor is told who leads and since which election; of this candidate by what it
// does, and not by the record, which says that it leads while it gives up.
func TestSupervisorIsToldWhoLeads(t *testing.T) {
	n, hears := hearing(t)
	s := newSupervisor(n, "me", whenLeading)
	tr := s.traced(nil)
	tr.StatusChanged(leaderelection.StatusChange{To: leaderelection.Following})
	hears("STATUS=standing by")
	tr.News(leaderelection.RaceEntry{LeaderID: "other\nREADY=1", ElectionNumber: 4})
	hears(`STATUS=standing by; "other\nREADY=1" leads, token 4`)
	tr.News(leaderelection.RaceEntry{ElectionNumber: 4})
	hears("STATUS=standing by; nobody leads")
	tr.News(leaderelection.RaceEntry{LeaderID: "me", ElectionNumber: 5})
	hears()
	tr.StatusChanged(leaderelection.StatusChange{To: leaderelection.Leading, Number: 5})
	hears("STATUS=leading, token 5", "READY=1")
	tr.StatusChanged(leaderelection.StatusChange{To: leaderelection.Draining, Number: 5})
	hears("STATUS=giving up leadership, token 5")
	tr.StatusChanged(leaderelection.StatusChange{To: leaderelection.Stopped})
	hears()
}

// READY is told when it is to be, and not when the other moment comes.
func TestSupervisorIsToldWhenReady(t *testing.T) {
	for _, c := range []struct {
		when           string
		says           bool
		first, elected []string // what is told
		leads          []string
	}{
		{whenStanding, false, []string{"READY=1"}, nil, nil},
		{whenLeading, false, nil, []string{"READY=1"}, nil},
		{whenLeading, true, nil, nil, []string{"READY=1"}},
	} {
		n, hears := hearing(t)
		s := newSupervisor(n, "me", c.when)
		s.says = c.says
		s.begun(nil)
		s.line.Phase("starting")
		s.line.Called(errors.New("refused")) // a client that connects only now
		hears("STATUS=starting", "STATUS=starting; the store has not answered yet: refused")
		s.line.Called(nil)
		hears(append([]string{"STATUS=starting"}, c.first...)...)
		s.changed(leaderelection.StatusChange{To: leaderelection.Leading, Number: 1})
		hears(append([]string{"STATUS=leading, token 1"}, c.elected...)...)
		s.leads()
		hears(c.leads...)
	}
}

// The end is told when the candidate is to end, and not if it was over before.
func TestSupervisorIsToldOfTheEnd(t *testing.T) {
	n, hears := hearing(t)
	s := newSupervisor(n, "me", whenLeading)
	ctx, cancel := context.WithCancel(t.Context())
	stop := s.start(ctx)
	cancel()
	hears("STATUS=starting", "STOPPING=1")
	stop()
	ctx, cancel = context.WithCancel(t.Context())
	newSupervisor(n, "me", whenLeading).start(ctx)()
	cancel()
	hears("STATUS=starting")
}

// How many shards a member owns is told as it changes.
func TestSupervisorIsToldHowManyShards(t *testing.T) {
	n, hears := hearing(t)
	m := &member{tell: newSupervisor(n, "", "")}
	for _, c := range []struct {
		more int
		want string
	}{{1, "owns 1 shard"}, {0, "owns 1 shard"}, {1, "owns 2 shards"}, {-1, "owns 1 shard"}, {-1, "owns no shard"}} {
		m.count(c.more)
		hears("STATUS=" + c.want)
	}
}

// The command finds nothing of what this process goes by, unless it is to have it: then all but the id of this
// process, and this process reports nothing.
func TestReadinessKeepsTheSocket(t *testing.T) {
	for _, pass := range []bool{false, true} {
		for _, name := range []string{notify.Socket, notify.WatchdogUsec, notify.WatchdogPID} {
			t.Setenv(name, "")
		}
		dir := t.TempDir()
		t.Setenv(notify.Socket, filepath.Join(dir, "socket"))
		t.Setenv(notify.WatchdogUsec, "200000")
		var log bytes.Buffer
		a := &app{errOut: &log}
		if _, err := (&readiness{when: whenStanding, pass: pass}).open(a, "me"); err != nil {
			t.Fatal(err)
		}
		a.log().Flush(time.Minute)
		var left []string
		for _, name := range []string{notify.Socket, notify.WatchdogUsec, notify.WatchdogPID} {
			if _, there := os.LookupEnv(name); there {
				left = append(left, name)
			}
		}
		if reports := strings.Contains(log.String(), dir); reports == pass || len(left) != map[bool]int{true: 2}[pass] {
			t.Errorf("passed on: %v: the command has %q; %s", pass, left, log.String())
		}
	}
}
