package stores

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Program says how to start a server.
type Program struct {
	// Name is what it is called in messages.
	Name string
	// Command is the program and its arguments, for a server that is to
	// listen on 127.0.0.1:port.
	Command func(port int) []string
	// Dir is its working directory. Empty: a temporary one.
	Dir string
	// Env is added to the environment, each "name=value".
	Env []string
	// Ready reports whether the server that listens on addr serves already; it
	// is asked again until it returns nil. Nil: it accepts a TCP connection.
	Ready func(ctx context.Context, addr string) error
}

// Process is a running server, with all the processes that it started: one
// process group. It ends with the test. It also ends with the test process, even
// where that is killed: a shell in the group waits for the end of its standard
// input, whose other end only the test process has, and then kills the group.
type Process struct {
	// Addr is where it listens: host and port.
	Addr string

	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	first chan string   // the first line on standard output
	ended chan struct{} // closed when it has ended and been awaited

	mu  sync.Mutex
	log []string // its last lines
}

// keeper runs its arguments, and kills its process group, itself included, when
// they have ended or when its standard input has.
const keeper = `exec 3<&0
"$@" </dev/null &
pid=$!
(cat <&3 >/dev/null; kill -KILL 0) &
wait $pid
kill -KILL 0`

// Start starts a server on a free port, waits until it is ready, and stops it
// at the end of the test.
func Start(t testing.TB, p Program) *Process {
	t.Helper()
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	if p.Ready == nil {
		p.Ready = Accepts
	}
	const tries = 3 // another process may take the port first
	for try := 1; ; try++ {
		port := FreePort(t)
		s := p.start(t, p.Command(port))
		s.Addr = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
		err := s.await(t.Context(), p.Ready)
		if err == nil {
			return s
		}
		if s.Stop(); try == tries {
			t.Fatalf("stores: %s: %v\n%s", p.Name, err, s.Log())
		}
	}
}

// Server starts the server internal/test/stores/servers/name, which is in a nested module, and which
// go run builds where it is not in Go's cache. It listens on a port that it
// finds itself, and prints its address as its first line.
func Server(t testing.TB, name string, args ...string) *Process {
	t.Helper()
	p := Program{Name: name, Dir: filepath.Join(Root(t), "internal", "test", "stores", "servers", name), Env: []string{"GOFLAGS=-mod=readonly", "GOWORK=off"}}
	s := p.start(t, append([]string{Need(t, "go"), "run", "."}, args...))
	const building = 10 * time.Minute // on a machine that has nothing in its cache
	patience := time.NewTimer(building)
	defer patience.Stop()
	select {
	case s.Addr = <-s.first:
	case <-s.ended:
		t.Fatalf("stores: %s ended before it listened:\n%s", name, s.Log())
	case <-patience.C:
		t.Fatalf("stores: %s does not listen after %v:\n%s", name, building, s.Log())
	}
	return s
}

// nested is a Server that keeps its address, and its data, when it is stopped and started again.
type nested struct {
	*Process
	server string // its directory in internal/test/stores/servers
	args   []string
}

// Start starts the server if it was stopped.
func (s *nested) Start(t testing.TB) {
	t.Helper()
	s.Process = Server(t, s.server, s.args...)
}

// Stop kills the server; Start starts it again. It is a method of its own, so that
// the method value s.Stop stops the process that runs when it is called.
func (s *nested) Stop() { s.Process.Stop() }

// start runs command with a keeper.
func (p Program) start(t testing.TB, command []string) *Process {
	t.Helper()
	shell := Need(t, "sh")
	s := &Process{name: p.Name, first: make(chan string, 1), ended: make(chan struct{})}
	s.cmd = exec.Command(shell, append([]string{"-c", keeper, p.Name}, command...)...)
	s.cmd.Dir = p.Dir
	s.cmd.Env = append(s.cmd.Environ(), p.Env...)
	ownGroup(s.cmd)
	stdin, err1 := s.cmd.StdinPipe()
	stdout, err2 := s.cmd.StdoutPipe()
	stderr, err3 := s.cmd.StderrPipe()
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatalf("stores: %s: %v", p.Name, err)
		}
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("stores: starting %s: %v", p.Name, err)
	}
	s.stdin = stdin
	go s.follow(stdout, stderr)
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("what %s said last:\n%s", p.Name, s.Log())
		}
	})
	return s
}

// follow reads what the server says until it has ended, and awaits it.
func (s *Process) follow(stdout, stderr io.Reader) {
	defer close(s.ended)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		s.read(stdout, s.first)
	}()
	wg.Add(1)
	go func() {
		defer wg.Done()
		s.read(stderr, nil)
	}()
	wg.Wait()
	_ = s.cmd.Wait() // it is killed, always
}

func (s *Process) read(r io.Reader, first chan<- string) {
	for b := bufio.NewReader(r); ; {
		line, err := b.ReadString('\n')
		if err != nil && line == "" {
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if first != nil {
			first <- line
			first = nil
		}
		s.mu.Lock()
		if s.log = append(s.log, line); len(s.log) > 200 {
			s.log = s.log[100:]
		}
		s.mu.Unlock()
	}
}

// await asks until the server is ready, for a minute at most.
func (s *Process) await(ctx context.Context, ready func(ctx context.Context, addr string) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, 5*time.Second)
		err := ready(attempt, s.Addr)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-s.ended:
			return fmt.Errorf("ended before it was ready (%w)", err)
		case <-ctx.Done():
			return fmt.Errorf("not ready after a minute: %w", err)
		}
	}
}

// serves awaits that the server is ready, or fails the test with what it said last.
func (s *Process) serves(t testing.TB, ready func(ctx context.Context, addr string) error) {
	t.Helper()
	if err := s.await(t.Context(), ready); err != nil {
		t.Fatalf("stores: %s at %s: %v\n%s", s.name, s.Addr, err, s.Log())
	}
}

// Accepts returns nil if something accepts connections at addr.
func Accepts(ctx context.Context, addr string) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// Stop kills the server and all that it started, and waits for their end. A
// second call does nothing. The end of the test calls it.
func (s *Process) Stop() {
	select {
	case <-s.ended: // awaited: its number may be another's by now
		return
	default:
	}
	_ = s.stdin.Close()
	killGroup(s.cmd)
	<-s.ended
}

// Log returns the last lines that the server printed.
func (s *Process) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// Servers that name one another must be told their ports before they listen, seconds before on
// a busy machine. A port that the kernel picks is one of those that it gives to outgoing
// connections as well, of which tests make hundreds a second, so another had it at times
// when the server came to listen. These are of a range below it, in blocks: a process holds
// the first port of its block for as long as it lives, and no other process uses the rest.
const (
	firstPort, endPort = 10240, 32768 // of Linux, ip_local_port_range begins at 32768; of others, later
	portBlock          = 256
)

var ports struct {
	sync.Mutex
	held []net.Listener // one for each block
	base int            // of the newest block
	next int            // the next port of it to be tried, from base
}

// FreePort returns a TCP port of the loopback interface that is free now, and that neither
// an outgoing connection nor another process that calls FreePort takes. One that was
// returned is returned again when all others of the process's block have been.
func FreePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range (endPort - firstPort) / portBlock {
		for range portBlock - 1 {
			if ports.base == 0 {
				break
			}
			port := ports.base + ports.next
			ports.next = ports.next%(portBlock-1) + 1
			if l := listenOn(port); l != nil {
				_ = l.Close()
				return port
			}
		}
		// All are in use: the process takes a block, one more if it has one.
		ports.base, ports.next = firstPort+portBlock*rand.IntN((endPort-firstPort)/portBlock), 1
		if l := listenOn(ports.base); l != nil {
			ports.held = append(ports.held, l)
		} else {
			ports.base = 0
		}
	}
	t.Fatalf("stores: no port from %d to %d is free", firstPort, endPort-1)
	return 0
}

func listenOn(port int) net.Listener {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil
	}
	return l
}
