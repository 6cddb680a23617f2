//go:build unix

package fleet

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Journal is what several processes have told so far, each line of their standard outputs as an L.
type Journal[L any] struct {
	read    func(text string, ended bool) L
	mu      sync.Mutex
	lines   map[string][]L // by process
	changed chan struct{}  // closed, and made afresh, with each line
}

// NewJournal returns an empty journal. It notes what read makes of each line, and of the end of a process.
func NewJournal[L any](read func(text string, ended bool) L) *Journal[L] {
	return &Journal[L]{read: read, lines: map[string][]L{}, changed: make(chan struct{})}
}

// Look calls f with what is there, and returns what is closed when there is more.
func (j *Journal[L]) Look(f func(lines map[string][]L)) (more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j.lines)
	return j.changed
}

// Await calls f with each change, until it returns true. It reports false if it has not within that time.
func (j *Journal[L]) Await(within time.Duration, f func(lines map[string][]L) bool) (ok bool) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		more := j.Look(func(lines map[string][]L) { ok = f(lines) })
		if ok {
			return true
		}
		select {
		case <-more:
		case <-timeout.C:
			return false
		}
	}
}

func (j *Journal[L]) add(process, text string, ended bool) {
	l := j.read(text, ended)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[process] = append(j.lines[process], l)
	close(j.changed)
	j.changed = make(chan struct{})
}

// Process is one that a test has started. Its standard input stays open until Leave or Kill.
type Process struct {
	Name    string
	Leaving bool // Leave or Kill was called
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	ended   chan struct{}
	stderr  first
}

// Start starts cmd, whose lines go to the journal under that name. The process ends with t, and with
// the test's own process: its standard input ends then, and since it is a process group of its own, the
// system wakes it up with a SIGHUP even if it is stopped. Linux kills it.
func (j *Journal[L]) Start(t testing.TB, name string, cmd *exec.Cmd) (*Process, error) {
	p := &Process{Name: name, cmd: cmd, ended: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent(&syscall.SysProcAttr{Setpgid: true})
	cmd.Stderr = &p.stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			j.add(name, s.Text(), false)
		}
		_ = cmd.Wait() // what it has to say is in its lines
		j.add(name, "", true)
	}()
	t.Cleanup(p.Kill)
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends it a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Tell writes a line to its standard input.
func (p *Process) Tell(line string) error {
	_, err := io.WriteString(p.stdin, line+"\n")
	return err
}

// Leave ends its standard input, which asks it to end in order.
func (p *Process) Leave() {
	p.Leaving = true
	_ = p.stdin.Close()
}

// Kill ends it at once, even if it is stopped, and awaits its end.
func (p *Process) Kill() {
	p.Leave()
	_ = p.cmd.Process.Kill() // nothing to kill if it has ended
	<-p.ended
}

// Stderr is what it has written to its standard error first.
func (p *Process) Stderr() string {
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	return p.stderr.text.String()
}

// first keeps what is written to it, as far as it has room.
type first struct {
	mu   sync.Mutex
	text strings.Builder
}

func (f *first) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(b[:min(len(b), 64<<10-f.text.Len())])
	return len(b), nil
}
