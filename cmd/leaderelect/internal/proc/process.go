//go:build unix

package proc

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Supported: commands can be run on this system.
const Supported = true

// Spec says what to run.
type Spec struct {
	// Args is the command and its arguments.
	Args []string
	// Env is its whole environment, each "name=value".
	Env []string
	// Stdin, Stdout and Stderr are what it reads and writes; nil is nothing.
	Stdin, Stdout, Stderr *os.File
	// Grace is how long it may take to end once it was asked to.
	Grace time.Duration
	// Until is when it must be dead: it is asked to end Grace before, and
	// killed then. Extend moves it.
	Until Deadline
	// Late is how long after Until the guard is held to be stuck, and what it
	// guards is killed from here.
	Late time.Duration
	// Logger is told what is out of the ordinary.
	Logger *slog.Logger
}

// Process is a command and all that it has started, under a guard. Its methods
// may be called by several goroutines at once, and none of them blocks.
type Process struct {
	guard  *exec.Cmd
	pipe   *os.File
	token  string
	late   time.Duration
	logger *slog.Logger
	ended  chan struct{} // the guard has been awaited
	done   chan struct{}

	mu      sync.Mutex
	until   Deadline
	stopBy  Deadline // when a stop that was ordered should be over
	stopped bool
	pid     int
	status  *Status
	expired bool
	gone    bool
}

// Start starts a command under a guard. What keeps the command itself from being
// started is said by its Status.
func Start(s Spec) (*Process, error) {
	if err := checkClock(); err != nil {
		return nil, err
	}
	path, err := self()
	if err != nil {
		return nil, fmt.Errorf("finding this program to guard the command with: %w", err)
	}
	theirs, mine, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe to the guard: %w", err)
	}
	defer theirs.Close()
	reports, answers, err := os.Pipe()
	if err != nil {
		mine.Close()
		return nil, fmt.Errorf("a pipe from the guard: %w", err)
	}
	defer answers.Close()
	p := &Process{pipe: mine, token: rand.Text(), late: s.Late, logger: s.Logger, until: s.Until,
		ended: make(chan struct{}), done: make(chan struct{})}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.guard = &exec.Cmd{
		Path:        path,
		Args:        append([]string{os.Args[0], GuardCommand, "--"}, s.Args...),
		Env:         append(s.Env[:len(s.Env):len(s.Env)], marker+"="+p.token),
		ExtraFiles:  []*os.File{theirs, answers},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	// A nil *os.File in an interface is not nil.
	if s.Stdin != nil {
		p.guard.Stdin = s.Stdin
	}
	if s.Stdout != nil {
		p.guard.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		p.guard.Stderr = s.Stderr
	}
	if err := p.guard.Start(); err != nil {
		mine.Close()
		reports.Close()
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	p.order(order{Until: &s.Until, Grace: s.Grace})
	go func() {
		_ = p.guard.Wait() // what matters is in its reports
		close(p.ended)
	}()
	go p.follow(reports)
	return p, nil
}

// stuck is how long a guard may take over its own part of a stop.
const stuck = time.Second

// order tells the guard something. A guard that does not take it is dealt with by
// follow in time.
func (p *Process) order(o order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.Until != nil {
		p.until = *o.Until
	}
	if o.Stop != 0 || o.Kill {
		p.stopped, p.stopBy = true, At(time.Now().Add(o.Grace+stuck), o.Grace+stuck)
	}
	_ = p.pipe.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	_ = json.NewEncoder(p.pipe).Encode(o)
}

// Extend moves the deadline. Where the command was asked to end already, it still
// has to.
func (p *Process) Extend(until Deadline) { p.order(order{Until: &until}) }

// Signal passes s on to the command's process group.
func (p *Process) Signal(s syscall.Signal) { p.order(order{Signal: int(s)}) }

// Stop asks the command to end by s, and kills it after grace, or at its deadline
// if that comes first.
func (p *Process) Stop(s syscall.Signal, grace time.Duration) {
	p.order(order{Stop: int(s), Grace: grace})
}

// Kill ends it at once.
func (p *Process) Kill() { p.order(order{Kill: true}) }

// Done is closed when the command, its guard and all that it had started are
// dead.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is the command's process id, or 0 while it has not been started.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Status is how the command has ended. It is complete when Done is closed.
func (p *Process) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Status{Code: CodeFailed, Failure: "its guard was killed"}
	if p.status != nil {
		s = *p.status
	}
	s.Expired = p.expired
	return s
}

// follow takes in what the guard reports, and sees to it that what it guards
// dies in time though it may not do its work.
func (p *Process) follow(reports *os.File) {
	defer close(p.done)
	defer p.pipe.Close()
	told := make(chan struct{})
	go func() {
		defer close(told)
		defer reports.Close()
		p.listen(json.NewDecoder(reports))
	}()
	look := time.NewTicker(slice / 2)
	defer look.Stop()
	for {
		select {
		case <-p.ended:
			<-told
			p.sweep()
			return
		case <-look.C:
			if p.overdue() {
				p.logger.Error("the guard does not end the command in time; killing both", "pid", p.Pid())
				p.group(syscall.SIGKILL)
				_ = p.guard.Process.Kill()
			}
		}
	}
}

func (p *Process) listen(d *json.Decoder) {
	for {
		var r report
		if d.Decode(&r) != nil {
			return
		}
		p.mu.Lock()
		switch {
		case r.Started != 0:
			p.pid = r.Started
		case r.Exited != nil:
			p.status = r.Exited
		case r.Ending != "":
			p.expired = true
			p.logger.Warn("ending the command", "why", r.Ending)
		}
		if r.Gone {
			p.gone = true
		}
		p.mu.Unlock()
	}
}

// overdue says whether everything should have been dead for a while.
func (p *Process) overdue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone && (p.until.Left() < -p.late || p.stopped && p.stopBy.Left() < 0)
}

// group signals the command's group.
func (p *Process) group(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 && p.status == nil {
		_ = syscall.Kill(-p.pid, s)
	}
}

// sweep kills what a guard that did not end well has left behind, and returns
// when it is dead.
func (p *Process) sweep() {
	p.mu.Lock()
	gone, pid := p.gone, p.pid
	p.mu.Unlock()
	if gone || pid == 0 && !canList {
		return
	}
	p.logger.Error("the guard is dead; killing what it guarded", "pid", pid)
	for {
		left := members(p.guard.Process.Pid, marker+"="+p.token)
		for _, id := range left {
			_ = syscall.Kill(id, syscall.SIGKILL)
		}
		if !canList && !errors.Is(syscall.Kill(-pid, syscall.SIGKILL), syscall.ESRCH) {
			left = append(left, pid)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(rekill)
	}
}
