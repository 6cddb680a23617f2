//go:build unix

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Process is a command and all that it has started, under a guard. Its methods
// may be called by several goroutines at once, and none of them blocks.
type Process struct {
	guard  *os.Process
	pipe   *os.File
	life   *os.File // wakes this process when the guard is dead; nil: nothing does
	begun  Deadline // before the guard had anything to run
	late   time.Duration
	logger Logger
	alarm  *Alarm        // for when the guard should have acted
	ended  chan struct{} // the guard has been awaited
	done   chan struct{}

	mu      sync.Mutex
	until   Deadline
	stopBy  Deadline // when a stop that was ordered should be over
	stopped bool
	pid     int
	status  *Status
	// The guard has said so:
	starting, expired, killed, gone bool
}

// Start starts a command under a guard. What keeps the command itself from being
// started is said by its Status. From now on this process adopts what a guard that
// is killed leaves behind.
func Start(s Spec) (*Process, error) {
	p := &Process{late: s.Late, logger: s.Logger, until: s.Until, begun: in(0), done: make(chan struct{})}
	var err error
	if p.alarm, err = NewAlarm(); err != nil {
		s.Ready.Close()
		return nil, err
	}
	reports, err := p.launch(s)
	if err != nil {
		p.alarm.Close()
		return nil, err
	}
	go p.follow(reports)
	return p, nil
}

// launch gives a guard its task: the one that waits for it, or if that is dead, or there is none, a
// new one.
func (p *Process) launch(s Spec) (reports *os.File, err error) {
	if err := errors.Join(Check(), adopt()); err != nil {
		s.Ready.Close()
		return nil, err
	}
	if r := s.Ready; r != nil {
		if err = p.give(r, s); err == nil {
			return r.reports, nil
		}
	}
	r, err := Prepare(s.Stdin, s.Stdout, s.Stderr)
	if err == nil {
		err = p.give(r, s)
	}
	if err != nil {
		return nil, err
	}
	return r.reports, nil
}

// give gives a guard its task by a pipe: what it is called with would be seen, and found by
// pkill -f, too. A guard that cannot be told is closed.
func (p *Process) give(r *Ready, s Spec) error {
	first := order{Task: &task{Setuid: s.Setuid, Remove: s.Remove}, Until: &s.Until, Grace: s.Grace, Late: s.Late}
	for _, a := range s.Args {
		first.Task.Args = append(first.Task.Args, []byte(a))
	}
	for _, e := range s.Env {
		first.Task.Env = append(first.Task.Env, []byte(e))
	}
	_ = r.guard.Signal(syscall.SIGCONT) // somebody may have stopped it while it waited
	// Long arguments do not fit into a pipe: this waits for the guard to read them.
	_ = r.pipe.SetWriteDeadline(time.Now().Add(max(s.Until.Left(), 0)))
	if err := json.NewEncoder(r.pipe).Encode(first); err != nil {
		r.Close()
		return fmt.Errorf("telling the guard what to run: %w", err)
	}
	_ = r.pipe.SetWriteDeadline(time.Time{})
	p.guard, p.pipe, p.life, p.ended = r.guard, r.pipe, r.life, r.ended
	p.alarm.Set(p.due())
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // of a nil one, too
	}
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
		by := in(o.Grace + stuck)
		if p.stopped { // ordered again, it is only earlier, as it is for the guard
			by = by.earlier(p.stopBy)
		}
		p.stopped, p.stopBy = true, by
	}
	p.alarm.Set(p.due())
	p.send(o)
}

// send puts o into the pipe if there is room, which there is unless the guard has read nothing for
// long. It does not wait: and not by a deadline either, which may be over on a busy machine
// before anything was written.
func (p *Process) send(o order) {
	text, err := json.Marshal(o)
	if err != nil {
		return
	}
	conn, err := p.pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Write(func(fd uintptr) bool {
		for {
			// So short a text is written as a whole or not at all (pipe(7), PIPE_BUF).
			if _, err := syscall.Write(int(fd), append(text, '\n')); err != syscall.EINTR {
				return true
			}
		}
	})
}

// Extend moves the deadline. If the command was asked to end already, it still
// has to.
func (p *Process) Extend(until Deadline) { p.order(order{Until: &until}) }

// Signal passes s on to the command; to its whole process group if it is one of a terminal's
// (WINCH, TSTP, CONT).
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
	s := Status{Code: CodeFailed, Failure: "its guard was killed", Unstarted: !p.starting}
	if p.status != nil {
		s = *p.status
	}
	s.Expired, s.Killed = p.expired, p.killed
	return s
}

// follow takes in what the guard reports, and sees to it that what it guards
// dies in time though it may not do its work.
func (p *Process) follow(reports *os.File) {
	defer close(p.done)
	defer p.alarm.Close()
	defer closeAll([]*os.File{p.pipe, p.life})
	told := make(chan struct{})
	go func() {
		defer close(told)
		defer reports.Close()
		p.listen(json.NewDecoder(reports))
	}()
	for {
		select {
		case <-p.ended:
			<-told
			p.sweep()
			return
		case <-p.alarm.C:
			if p.overdue() {
				p.logger.Error("the guard does not end the command in time; killing both", "pid", p.Pid())
				p.group(syscall.SIGKILL)
				_ = p.guard.Kill()
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
		p.take(r)
	}
}

// take takes in one report.
func (p *Process) take(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Starting:
		p.starting = true
	case r.Started != 0:
		p.pid = r.Started
	case r.Exited != nil:
		p.status = r.Exited
	case r.Ending != "":
		p.expired = true
		p.logger.Warn("ending the command", "why", r.Ending)
	case r.Killed:
		p.killed = true
	case r.Denied != "":
		p.denied(r.Denied)
	}
	if r.Gone {
		p.gone = true
	}
}

// denied says what it means that a process may not be signalled.
func (p *Process) denied(process string) {
	p.logger.Error("a process of the command runs as another user and cannot be ended; it may run on while another candidate leads: run leaderelect as that user or as root, or without --allow-setuid", "process", process)
}

// due is when everything should have been dead for a while.
func (p *Process) due() Deadline {
	d := p.until.Sub(-p.late)
	if p.stopped {
		d = d.earlier(p.stopBy)
	}
	return d
}

// overdue reports whether it is not.
func (p *Process) overdue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.gone && p.due().Left() <= 0
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
	refused := make(map[int]bool)
	for pause := rekill; ; pause = min(2*pause, rekillMost) {
		left, more := orphans(p.begun.Steady)
		for _, id := range left {
			if err := syscall.Kill(id, syscall.SIGKILL); errors.Is(err, syscall.EPERM) && !refused[id] {
				refused[id] = true
				p.denied(fmt.Sprintf("%d (%s)", id, owner(id)))
			}
		}
		if !canList && !errors.Is(syscall.Kill(-pid, syscall.SIGKILL), syscall.ESRCH) {
			left = append(left, pid)
		}
		if len(left) == 0 && !more {
			return
		}
		time.Sleep(pause)
	}
}

// Ready is a guard that waits for its task: whoever has one starts a command without first starting
// a process of this program, which takes longer than most commands do. It holds the files that
// it was made with, sleeps, and ends with this process.
type Ready struct {
	guard               *os.Process
	pipe, life, reports *os.File
	ended               chan struct{} // it has been awaited
}

// Prepare starts a guard for a command with these files; see Spec.
func Prepare(stdin, stdout, stderr *os.File) (r *Ready, err error) {
	if err := errors.Join(Check(), adopt()); err != nil {
		return nil, err
	}
	path, err := self()
	if err != nil {
		return nil, fmt.Errorf("finding this program to guard the command with: %w", err)
	}
	r = &Ready{ended: make(chan struct{})}
	theirs, err := r.connect()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs)
	kept := inherited()
	args := []string{guardName, GuardCommand, "--of", strconv.Itoa(os.Getpid()), "--files", strconv.Itoa(3 + len(kept))}
	own := append(slices.Clone(theirs), r.life) // fileOrders and so on
	if r.guard, err = guards.begin(func() (*os.Process, error) {
		return spawn(path, args, settings(), [3]*os.File{stdin, stdout, stderr}, kept, own)
	}); err != nil {
		closeAll([]*os.File{r.pipe, r.life, r.reports})
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	go func() {
		_, _ = r.guard.Wait() // what matters is in its reports
		guards.gone(r.guard.Pid)
		close(r.ended)
	}()
	return r, nil
}

// settings are what Go's runtime reads of the environment. A guard has nothing else of it.
func settings() []string {
	env := []string{} // not nil, which would be all of it
	for _, name := range []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "GODEBUG", "GOTRACEBACK", "GORACE"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Close ends a guard that has not been given a task, and returns when it has ended. A nil one is
// none.
func (r *Ready) Close() {
	if r == nil {
		return
	}
	closeAll([]*os.File{r.pipe, r.reports})
	_ = r.guard.Signal(syscall.SIGKILL)
	<-r.ended
	closeAll([]*os.File{r.life})
}

// connect makes the pipes to the guard, theirs being its ends.
func (r *Ready) connect() (theirs []*os.File, err error) {
	var all []*os.File
	defer func() {
		if err != nil {
			closeAll(all)
		}
	}()
	orders, pipe, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe to the guard: %w", err)
	}
	all = []*os.File{orders, pipe}
	reports, answers, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("a pipe from the guard: %w", err)
	}
	all = append(all, reports, answers)
	life, end, err := lifeline()
	if err != nil {
		return nil, err
	}
	r.pipe, r.life, r.reports = pipe, life, reports
	return []*os.File{orders, answers, end}, nil
}

// guards are the living guards of this process: what is below one of them is not what
// another has left behind. They are of the process, as its children are.
var guards living

type living struct {
	mu   sync.Mutex
	pids map[int]bool
}

// begin starts a guard. Nobody sees it in between without being told that it is one.
func (l *living) begin(start func() (*os.Process, error)) (*os.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := start()
	if err == nil {
		if l.pids == nil {
			l.pids = map[int]bool{}
		}
		l.pids[p.Pid] = true
	}
	return p, err
}

// gone notes that a guard was awaited.
func (l *living) gone(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pids, pid)
}

// settled is how long a child is left to the code that has started it, before it is taken
// for nobody's: os/exec awaits its own at once.
const settled = time.Second

// Reap awaits orphans if this is the first process of a container, which every
// orphan becomes a child of: else the dead would fill its table of processes. It
// goes on until stop is called.
func Reap() (stop func()) {
	if os.Getpid() != 1 {
		return func() {}
	}
	return reapAll()
}

func reapAll() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	done := make(chan struct{})
	go func() {
		before := zombies()
		again := time.NewTimer(settled)
		defer again.Stop()
		for {
			select {
			case <-done:
				return
			case <-c:
				if len(before) > 0 {
					continue // the next look is on its way
				}
			case <-again.C:
			}
			var left []int
			for _, pid := range zombies() {
				if !slices.Contains(before, pid) {
					left = append(left, pid)
				} else {
					_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // other code may have awaited it meanwhile
				}
			}
			if before = left; len(left) > 0 {
				again.Reset(settled)
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(done)
	}
}
