// Package notify tells a supervisor how this process is: systemd by datagrams
// (sd_notify(3)), and s6 or any other by a line on a file descriptor.
package notify

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/outbox"
)

// The variables by which systemd says where and how often it wants to be told.
const (
	Socket       = "NOTIFY_SOCKET"
	WatchdogUsec = "WATCHDOG_USEC"
	WatchdogPID  = "WATCHDOG_PID"
)

// Notifier tells one supervisor, or two, or none. Its methods may be called by several
// goroutines at once, wait for no supervisor, and fail silently: the work goes on if one
// does not listen. The zero value tells nobody.
type Notifier struct {
	systemd *net.UnixConn
	every   time.Duration // between two signs of life; 0: none are wanted

	datagrams, lines outbox.Box

	mu      sync.Mutex
	waiting []string // for systemd to take them; the first is the oldest
	line    *os.File // nil: not wanted
	ready   bool
}

// mostWaiting is how many messages wait for systemd before an old status is dropped for a new one.
const mostWaiting = 16

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

// tell has systemd told after all earlier messages. The caller holds mu.
func (n *Notifier) tell(message string) {
	if n.systemd == nil {
		return
	}
	if len(n.waiting) >= mostWaiting {
		n.waiting = slices.DeleteFunc(n.waiting, func(m string) bool { return strings.HasPrefix(m, status) })
	}
	n.waiting = append(n.waiting, message)
	n.datagrams.Put(1, n.send)
}

// send sends what waits.
func (n *Notifier) send() {
	for {
		n.mu.Lock()
		if len(n.waiting) == 0 {
			n.mu.Unlock()
			return
		}
		message := n.waiting[0]
		n.waiting = slices.Delete(n.waiting, 0, 1)
		n.mu.Unlock()
		_, _ = n.systemd.Write([]byte(message))
	}
}

// Flush waits until the supervisors have taken everything, but no longer than within.
func (n *Notifier) Flush(within time.Duration) {
	limit := time.Now().Add(within)
	n.datagrams.Flush(within)
	n.lines.Flush(time.Until(limit))
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
	if line := n.line; line != nil {
		n.lines.Put(1, func() {
			_, _ = line.WriteString("\n")
			_ = line.Close()
		})
	}
}

// Messages that a later one of their kind replaces.
const (
	status   = "STATUS="
	watchdog = "WATCHDOG=1"
)

// Status says in a line how this process is, for systemctl status.
func (n *Notifier) Status(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell(status + strings.ReplaceAll(line, "\n", " "))
}

// Stopping says that this process is ending.
func (n *Notifier) Stopping() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell("STOPPING=1")
}

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
				n.live()
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

// live gives a sign of life, unless one waits already.
func (n *Notifier) live() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Contains(n.waiting, watchdog) {
		n.tell(watchdog)
	}
}
