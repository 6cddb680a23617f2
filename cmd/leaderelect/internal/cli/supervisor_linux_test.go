package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/notify"
)

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

// terminal is a terminal's two ends: what types, and what a program reads.
func terminal(t *testing.T) (typist, tty *os.File) {
	t.Helper()
	typist, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { typist.Close() })
	must(t, unix.IoctlSetPointerInt(int(typist.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(typist.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { tty.Close() })
	return typist, tty
}

// On a terminal transfer asks whether there is such a candidate, and only yes is yes.
func TestTransferAsks(t *testing.T) {
	at := place(t, leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 7, TermExpiry: time.Now().Add(time.Hour), TermLength: time.Hour, Incarnation: "i"})
	for _, answer := range []string{"no\n", "\n", "y\n", "yes\n"} { // what the last one writes stays
		asked := answer == "yes\n"
		typist, tty := terminal(t)
		if _, err := typist.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		run(t.Context(), []string{"transfer", "--timeout", "300ms", at, "b"}, tty, &out, &errOut)
		out.Write(errOut.Bytes())
		if !strings.Contains(out.String(), "nobody leads for up to 1h0m0s") || strings.Contains(out.String(), "asked, but not within") != asked {
			t.Errorf("%q: %s", answer, out.String())
		}
		if _, said, _ := says(t, "status", at); strings.Contains(said, "hand over to b") != asked {
			t.Errorf("%q: then %s", answer, said)
		}
	}
}
