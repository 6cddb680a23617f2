// Package notify tells a supervisor how this process is: systemd by datagrams
// (sd_notify(3)), and s6 or any other by a line on a file descriptor.
package notify

import (
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The variables by which systemd says where and how often it wants to be told.
const (
	Socket       = "NOTIFY_SOCKET"
	WatchdogUsec = "WATCHDOG_USEC"
	WatchdogPID  = "WATCHDOG_PID"
)

// Notifier tells one supervisor, or two, or none. Its methods may be called by several
// goroutines at once, and fail silently: a supervisor that does not listen is no reason to
// stop. The zero value tells nobody.
type Notifier struct {
	systemd *net.UnixConn
	every   time.Duration // between two signs of life; 0: none are wanted

	mu    sync.Mutex
	line  *os.File // nil: not wanted
	ready bool
}

// Open returns who tells systemd at socket (empty: nobody), and by line, which it closes
// then. Getenv is for what else the environment has.
func Open(socket string, line *os.File, getenv func(string) string) (*Notifier, error) {
	n := &Notifier{line: line}
	if socket == "" {
		return n, nil
	}
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return n, fmt.Errorf("%s is %q: want a path, or @ and a name", Socket, socket)
	}
	var err error
	if n.systemd, err = net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"}); err != nil {
		return n, fmt.Errorf("%s is %q: %w", Socket, socket, err)
	}
	if pid := getenv(WatchdogPID); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(getenv(WatchdogUsec), 10, 64); err == nil && usec > 0 && usec <= int64(math.MaxInt64/time.Microsecond) {
			n.every = time.Duration(usec) * time.Microsecond / 2
		}
	}
	return n, nil
}

func (n *Notifier) tell(format string, args ...any) {
	if n.systemd != nil {
		_, _ = fmt.Fprintf(n.systemd, format, args...)
	}
}

// Ready says once that this process does what it is there for.
func (n *Notifier) Ready() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ready {
		return
	}
	n.ready = true
	n.tell("READY=1")
	if n.line != nil {
		_, _ = n.line.WriteString("\n")
		_ = n.line.Close()
	}
}

// Status says in a line how this process is, for systemctl status.
func (n *Notifier) Status(line string) {
	n.tell("STATUS=%s", strings.ReplaceAll(line, "\n", " "))
}

// Stopping says that this process is ending.
func (n *Notifier) Stopping() { n.tell("STOPPING=1") }

// Watch gives signs of life while alive says so, as often as is wanted, until stop is called.
func (n *Notifier) Watch(alive func() bool) (stop func()) {
	if n.every == 0 {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		again := time.NewTicker(n.every)
		defer again.Stop()
		for {
			if alive() {
				n.tell("WATCHDOG=1")
			}
			select {
			case <-again.C:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}
