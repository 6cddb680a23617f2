//go:build unix

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What should be dead is looked for again after a pause, which doubles up to most:
// what cannot be killed must not keep a processor busy.
const (
	rekill     = 10 * time.Millisecond
	rekillMost = time.Second
)

// aloneLate is how late a guard may be at the most whose candidate is gone. Were it killed
// for that, nobody would end what has left the command's group; so it is killed only when it
// can hardly come to its work any more, as when a debugger holds it.
const aloneLate = 5 * time.Second

// guard is the state of a guard process. All of it belongs to one goroutine,
// whose thread must live as long as the command: the kernel kills the command
// when the thread that started it ends.
type guard struct {
	reports *json.Encoder
	life    int        // the file by which its end is told
	orders  chan order // closed when the candidate is gone
	reaped  chan reaped
	alarm   *Alarm
	rouser  *rouser

	task    task
	alone   bool // the candidate is gone
	until   Deadline
	grace   time.Duration
	late    time.Duration
	pid     int // the command's, and its group's
	status  *Status
	ending  bool
	killAt  Deadline      // once ending
	killed  bool          // killing has begun
	again   Deadline      // when to kill what is left once more
	pause   time.Duration // after that
	refused map[int]bool  // may not be signalled; told
}

type reaped struct {
	pid    int // 0: there are no children any more
	status syscall.WaitStatus
}

// Guard is the whole life of a guard process. It returns the exit code, which
// nobody looks at.
func Guard() int {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1) // one thread wakes up, and no other to help it
	base, err := firstFile(os.Args)
	if err != nil {
		return unasked()
	}
	_ = syscall.SetNonblock(base+fileOrders, true) // for the poller: a read would keep a thread
	in, out := os.NewFile(uintptr(base+fileOrders), "orders"), os.NewFile(uintptr(base+fileReports), "reports")
	for fd := base; fd < base+files; fd++ { // the command must not hold these: their end tells of a death
		syscall.CloseOnExec(fd)
	}
	deaf()
	rename()
	g := &guard{reports: json.NewEncoder(out), life: base + fileLife, orders: make(chan order), reaped: make(chan reaped), refused: make(map[int]bool)}
	go g.listen(json.NewDecoder(in))
	first, alive := <-g.orders
	if !alive {
		return 0 // the candidate has gone, and had nothing to run
	}
	if first.Until == nil || first.Task == nil || len(first.Task.Args) == 0 {
		return unasked()
	}
	g.task, g.until, g.grace, g.late = *first.Task, *first.Until, first.Grace, first.Late
	if g.alarm, err = NewAlarm(); err != nil {
		return g.failed(CodeFailed, err)
	}
	if g.rouser, err = newRouser(); err != nil {
		return g.failed(CodeFailed, err)
	}
	g.rouse()
	if err := errors.Join(Check(), adopt()); err != nil {
		return g.failed(CodeFailed, err)
	}
	if g.until.Left() <= g.grace {
		g.report(report{Ending: "no time was left to run it in"})
		return g.failed(CodeFailed, errors.New("no time was left to run the command in"))
	}
	if code, err := g.start(); err != nil {
		return g.failed(code, err)
	}
	g.loop()
	return 0
}

// firstFile is the number of the first of a guard's own files, which it is called with.
func firstFile(args []string) (int, error) {
	if len(args) != 6 {
		return 0, errors.New("no guard's arguments")
	}
	return strconv.Atoi(args[5])
}

// unasked is how a guard ends that no candidate has started.
func unasked() int {
	fmt.Fprintf(os.Stderr, "leaderelect: %s is for leaderelect's own use; see leaderelect help run\n", GuardCommand)
	return 2
}

// deaf makes the guard survive signals that are meant for the candidate or the
// command. They are caught, not ignored: that would be inherited.
func deaf() {
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXFSZ} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	go func() {
		for range c {
		}
	}()
}

func (g *guard) report(r report) { _ = g.reports.Encode(r) } // if nobody listens, orders has ended

func (g *guard) failed(code int, err error) int {
	letGo(g.life)
	g.report(report{Exited: &Status{Code: code, Failure: err.Error(), Unstarted: true}, Gone: true})
	return 1
}

func (g *guard) listen(d *json.Decoder) {
	defer close(g.orders)
	for {
		var o order
		if d.Decode(&o) != nil {
			return
		}
		g.orders <- o
	}
}

// start starts the command. It must be called on the guard's own thread.
func (g *guard) start() (code int, err error) {
	args, env := texts(g.task.Args), texts(g.task.Env)
	search(env)
	path, err := Find(args[0], g.task.Setuid)
	if err != nil {
		return CodeOf(err), err
	}
	if confined() && !g.task.Setuid {
		if err := confine(); err != nil {
			return CodeFailed, err
		}
	}
	g.report(report{Starting: true})
	p, err := os.StartProcess(path, args, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   ownGroup(),
	})
	if errors.Is(err, syscall.ENOEXEC) {
		err = fmt.Errorf("%w: it is not a program of this system; the first line of a script must name its interpreter, such as #!/bin/sh", err)
	}
	if err != nil {
		return CodeOf(err), err
	}
	g.pid = p.Pid
	_ = p.Release() // reap awaits it
	g.report(report{Started: g.pid})
	go g.reap()
	return 0, nil
}

// texts are what a task has as bytes.
func texts(all [][]byte) []string {
	texts := make([]string, 0, len(all)) // not nil: a command may have no environment
	for _, t := range all {
		texts = append(texts, string(t))
	}
	return texts
}

// search has Find look where the command's own environment says.
func search(env []string) {
	_ = os.Unsetenv("PATH")
	for _, e := range env {
		if path, is := strings.CutPrefix(e, "PATH="); is {
			_ = os.Setenv("PATH", path)
		}
	}
}

// reap awaits the command, and whatever the guard has adopted.
func (g *guard) reap() {
	for {
		var r reaped
		var err error
		r.pid, err = syscall.Wait4(-1, &r.status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			g.reaped <- reaped{}
			return
		default:
			g.reaped <- r
		}
	}
}

// loop guards until everything is dead.
func (g *guard) loop() {
	orders := g.orders
	childless := false
	for !childless || !g.groupGone() {
		g.alarm.Set(g.due())
		g.rouse()
		select {
		case o, alive := <-orders:
			if !alive {
				orders, g.alone = nil, true
				g.rouse() // before anybody is told: the guard has longer from here on
				g.report(report{Ending: "the candidate is gone"})
				g.end(syscall.SIGTERM, g.grace)
				break
			}
			g.obey(o)
		case r := <-g.reaped:
			childless = r.pid == 0
			if r.pid == g.pid && r.pid != 0 {
				g.exited(r.status)
			}
		case <-g.alarm.C:
		}
		g.check()
	}
	if g.alone { // nobody else tidies up
		for _, path := range g.task.Remove {
			_ = os.Remove(path)
		}
	}
	letGo(g.life)
	g.report(report{Gone: true})
}

// rouse has the kernel wake the guard, if it is stopped, when something has to be done;
// and kill it, and by that the command, if it has not been done by the time at which the
// candidate would, who ends the rest.
func (g *guard) rouse() {
	var kill time.Duration // never
	late := g.late
	if g.alone {
		late = max(late, aloneLate)
	}
	if !g.killed {
		kill = max(g.until.Left()+late, 1)
	}
	g.rouser.set(g.due(), kill)
}

// unread is how long an order may take from the pipe to the guard.
const unread = 10 * time.Millisecond

// heed obeys the orders that are there already: to a guard that was stopped the time may
// seem to be over, and it has been extended.
func (g *guard) heed() {
	for {
		select {
		case o, alive := <-g.orders:
			if !alive {
				g.alone = true // loop finds out, too
				return
			}
			g.obey(o)
		case <-time.After(unread):
			return
		}
	}
}

// due is when something has to be done though nothing has happened.
func (g *guard) due() Deadline {
	switch {
	case g.killed:
		return g.again
	case g.status != nil && !canList:
		return in(rekill) // nobody tells when the last of the group has ended
	case g.ending:
		return g.until.earlier(g.killAt)
	}
	return g.until.Sub(g.grace)
}

func (g *guard) obey(o order) {
	switch {
	case o.Until != nil:
		g.until = *o.Until
	case o.Kill:
		g.end(syscall.SIGKILL, 0)
	case o.Stop != 0:
		g.end(syscall.Signal(o.Stop), o.Grace)
	case o.Signal != 0 && g.status == nil:
		g.pass(syscall.Signal(o.Signal))
	}
}

// pass passes a signal on to the command: what a terminal tells all of a group to the group, and
// any other, as one that asks for a reload, to the command alone, as a service manager does. Its
// helpers may not expect it, and would be ended.
func (g *guard) pass(s syscall.Signal) {
	to := g.pid
	switch s {
	case syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT:
		to = -g.pid
	}
	_ = syscall.Kill(to, s)
}

// check ends the command when its time has come, and kills it when that is over.
func (g *guard) check() {
	if !g.ending && g.until.Left() <= g.grace {
		g.heed()
	}
	left := g.until.Left()
	if !g.ending && left <= g.grace {
		g.report(report{Ending: "the lease was not extended in time"})
		g.end(syscall.SIGTERM, g.grace)
	}
	if !g.ending || left > 0 && g.killAt.Left() > 0 {
		return
	}
	if !g.killed {
		g.killed, g.pause = true, rekill
		g.report(report{Killed: true})
	} else if g.again.Left() > 0 {
		return
	}
	g.signal(syscall.SIGKILL)
	g.again = in(g.pause)
	g.pause = min(2*g.pause, rekillMost)
}

// end asks everything to end, and sets when it will be killed. Asked again, it only
// shortens that.
func (g *guard) end(s syscall.Signal, grace time.Duration) {
	if g.ending && g.killAt.Left() <= grace {
		return
	}
	g.ending, g.killAt = true, in(grace)
	g.signal(s)
	g.signal(syscall.SIGCONT) // what is stopped cannot end
}

// exited notes the end of the command itself. What it has left running is ended,
// too.
func (g *guard) exited(w syscall.WaitStatus) {
	g.status = &Status{Code: w.ExitStatus()}
	if w.Signaled() {
		g.status.Signal = int(w.Signal())
		g.status.Code = 128 + g.status.Signal
	}
	g.report(report{Exited: g.status})
	if !g.ending {
		g.end(syscall.SIGTERM, g.grace)
	}
}

// signal reaches the command's group, and what has left the group. Once the
// command has been reaped, the group's number may in theory be another's: then
// its members are looked up one by one, if that can be done. So they are when
// they are killed, to find out which of them may not be.
func (g *guard) signal(s syscall.Signal) {
	below := descendants()
	whole := g.status == nil || !canList
	if whole {
		g.denied(g.pid, syscall.Kill(-g.pid, s))
	}
	for _, pid := range below {
		if pgid, err := syscall.Getpgid(pid); !whole || s == syscall.SIGKILL || err == nil && pgid != g.pid {
			g.denied(pid, syscall.Kill(pid, s))
		}
	}
}

// denied tells once of a process that has become another user's.
func (g *guard) denied(pid int, err error) {
	if errors.Is(err, syscall.EPERM) && !g.refused[pid] {
		g.refused[pid] = true
		g.report(report{Denied: fmt.Sprintf("%d (%s)", pid, owner(pid))})
	}
}

// groupGone reports whether the command's group has no member, where the guard's
// having no children does not say so already.
func (g *guard) groupGone() bool {
	return canList || errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH)
}
