//go:build unix

package proctest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// process is a candidate that runs, or has run.
type process struct {
	name   string // of the process: a candidate that is started again has another
	slot   int
	cmd    *exec.Cmd
	stdin  io.Closer
	ended  chan struct{}
	closed bool // asked to leave, or killed
}

// journal is what all processes have logged so far.
type journal struct {
	mu      sync.Mutex
	lines   map[string][]line
	stderr  map[string]*strings.Builder
	changed chan struct{} // closed, and made afresh, with each line
}

func newJournal() *journal {
	return &journal{lines: map[string][]line{}, stderr: map[string]*strings.Builder{}, changed: make(chan struct{})}
}

// look calls f with what is there, and returns what is closed when there is more.
func (j *journal) look(f func(lines map[string][]line)) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j.lines)
	return j.changed
}

func (j *journal) add(name string, l line) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines[name] = append(j.lines[name], l)
	close(j.changed)
	j.changed = make(chan struct{})
}

// start starts this test binary again as a candidate. It dies with this process:
// its standard input ends then, and since it is a process group of its own, the
// system wakes it up with a SIGHUP even where it is stopped.
func (j *journal) start(t testing.TB, name string, r role, env []string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, ended: make(chan struct{})}
	p.cmd = exec.Command(exe, "-test.run=^$") // no test, where TestMain does not call Main
	p.cmd.Env = append(append(p.cmd.Environ(), env...), roleEnv+"="+string(told))
	p.cmd.SysProcAttr = DieWithParent(&syscall.SysProcAttr{Setpgid: true})
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	stderr, err3 := p.cmd.StderrPipe()
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("proctest: starting a candidate: %v", err)
	}
	p.stdin = stdin
	go func() {
		defer close(p.ended)
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			defer wg.Done()
			j.readLog(name, stdout)
		}()
		wg.Add(1)
		go func() {
			defer wg.Done()
			j.readStderr(name, stderr)
		}()
		wg.Wait()
		_ = p.cmd.Wait() // what it has to say is in its log
		j.add(name, line{Kind: gone})
	}()
	t.Cleanup(p.kill)
	return p
}

// gone is in the journal alone: the process has ended, however that was.
const gone kind = "gone"

func (j *journal) readLog(name string, r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			l = line{Kind: failed, Why: fmt.Sprintf("it printed %q; does TestMain call proctest.Main first?", s.Text())}
		}
		j.add(name, l)
	}
}

func (j *journal) readStderr(name string, r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		j.mu.Lock()
		b := j.stderr[name]
		if b == nil {
			b = &strings.Builder{}
			j.stderr[name] = b
		}
		if b.Len() < 64<<10 {
			fmt.Fprintln(b, s.Text())
		}
		j.mu.Unlock()
	}
}

func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("proctest: %v to %s: %v", s, p.name, err)
	}
}

// leave asks the process to end in order.
func (p *process) leave() {
	p.closed = true
	_ = p.stdin.Close()
}

// kill ends the process at once, also where it is stopped, and awaits it.
func (p *process) kill() {
	p.closed = true
	_ = p.stdin.Close()
	_ = p.cmd.Process.Kill() // nothing to kill, where it has ended
	<-p.ended
}
