package notify

import (
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listen is what systemd has at a socket of that name.
func listen(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// short is a directory whose path is short enough for a socket's.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// hears waits for the next datagrams.
func hears(t *testing.T, c *net.UnixConn, want ...string) {
	t.Helper()
	for _, w := range want {
		must(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
		b := make([]byte, 4096)
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("no %q: %v", w, err)
		}
		if got := string(b[:n]); got != w {
			t.Fatalf("told was %q, want %q", got, w)
		}
	}
}

func none(string) string { return "" }

// Systemd is told at a path, and at a name that no file has. READY is told once, and a
// status is one line, whatever it has in it.
func TestTold(t *testing.T) {
	for _, name := range []string{filepath.Join(short(t), "socket"), "@leaderelection-test-" + strconv.Itoa(os.Getpid())} {
		c := listen(t, name)
		n, err := Open(name, nil, none)
		must(t, err)
		n.Ready()
		n.Ready()
		n.Status("led by x\nREADY=1, 100%d")
		n.Stopping()
		hears(t, c, "READY=1", "STATUS=led by x READY=1, 100%d", "STOPPING=1")
	}
}

// A socket that nobody is told at is said to be so, and all else works without it, or without any: the line is written
// once, and closed, which whoever reads it waits for.
func TestNobodyIsTold(t *testing.T) {
	for name, wrong := range map[string]string{"": "", "relative": "want a path, or @ and a name", filepath.Join(short(t), "nobody"): "no such file"} {
		r, w, err := os.Pipe()
		must(t, err)
		defer r.Close()
		n, err := Open(name, w, none)
		if (err == nil) != (wrong == "") || err != nil && (!strings.Contains(err.Error(), strconv.Quote(name)) || !strings.Contains(err.Error(), wrong)) {
			t.Errorf("%s: %v", name, err)
		}
		n.Status("lost")
		n.Ready()
		n.Ready()
		n.Stopping()
		n.Watch(func() bool { t.Error("asked for a sign of life"); return true })()
		if line, err := io.ReadAll(r); err != nil || string(line) != "\n" {
			t.Errorf("%s: the line is %q, %v", name, line, err)
		}
	}
}

// Signs of life are given twice as often as they are wanted, and only if they are this
// process's to give. What makes no sense wants none.
func TestEvery(t *testing.T) {
	socket := filepath.Join(short(t), "socket")
	listen(t, socket)
	own := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0},
		{"200000", "", 100 * time.Millisecond},
		{"200000", own, 100 * time.Millisecond},
		{"200000", own + "0", 0},
		{"200000", "x", 0},
		{"3", "", 1500 * time.Nanosecond},
		{"0", "", 0},
		{"-200000", "", 0},
		{"soon", "", 0},
		{"18446744073709551615", "", 0},                      // systemd's infinity
		{strconv.FormatInt(math.MaxInt64, 10), "", 0},        // too many nanoseconds
		{strconv.FormatInt(math.MaxInt64/1000+1, 10), "", 0}, // just so
		{strconv.FormatInt(math.MaxInt64/1000, 10), "", math.MaxInt64 / 2000 * 1000}, // the most
	} {
		n, err := Open(socket, nil, func(name string) string {
			return map[string]string{WatchdogUsec: c.usec, WatchdogPID: c.pid}[name]
		})
		must(t, err)
		if (n.every - c.want).Abs() > time.Microsecond {
			t.Errorf("%q for %q: every %v, want %v", c.usec, c.pid, n.every, c.want)
		}
		n.Watch(func() bool { return false })()
	}
}

// A sign is given at once, and again, but for looks that find that this process does not do
// its work; and none when it was stopped.
func TestWatch(t *testing.T) {
	socket := filepath.Join(short(t), "socket")
	c := listen(t, socket)
	n, err := Open(socket, nil, func(name string) string {
		return map[string]string{WatchdogUsec: "2000"}[name]
	})
	must(t, err)
	looks := make(chan bool)
	stop := n.Watch(func() bool { return <-looks })
	looks <- false
	looks <- true
	hears(t, c, "WATCHDOG=1")
	looks <- false
	looks <- false
	n.Status("between") // after two looks that were in vain: nothing else was told
	hears(t, c, "STATUS=between")
	looks <- true
	hears(t, c, "WATCHDOG=1")
	stop()
	for more := 0; ; more++ {
		select {
		case looks <- false: // it was about to look
			if more > 1000 {
				t.Fatal("stopped, it looks again and again")
			}
			continue
		case <-time.After(50 * time.Millisecond):
		}
		return
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
