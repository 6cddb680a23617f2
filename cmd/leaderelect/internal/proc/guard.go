//go:build unix

package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// slice is the longest a guard sleeps before it looks at both clocks again.
const slice = 100 * time.Millisecond

// rekill is how often what should be dead is looked for.
const rekill = 10 * time.Millisecond

// guard is the state of a guard process. All of it belongs to one goroutine,
// whose thread must live as long as the command: the kernel kills the command
// when the thread that started it ends.
type guard struct {
	reports *json.Encoder
	orders  chan order // closed when the candidate is gone
	reaped  chan reaped

	until  Deadline
	grace  time.Duration
	pid    int // the command's, and its group's
	status *Status
	ending bool
	killAt Deadline // once ending
}

type reaped struct {
	pid    int // 0: there are no children any more
	status syscall.WaitStatus
}

// Guard is the whole life of a guard process; args are the command. It returns
// the exit code, which nobody looks at.
func Guard(args []string) int {
	runtime.LockOSThread()
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	in, out := os.NewFile(3, "orders"), os.NewFile(4, "reports")
	if _, err := in.Stat(); err != nil || len(args) == 0 || os.Getenv(marker) == "" {
		fmt.Fprintf(os.Stderr, "leaderelect: %s is for leaderelect's own use; see leaderelect help run\n", GuardCommand)
		return 2
	}
	// The command must not hold these: their end tells of a death.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	deaf()
	g := &guard{reports: json.NewEncoder(out), orders: make(chan order), reaped: make(chan reaped)}
	go g.listen(json.NewDecoder(in))
	first, alive := <-g.orders
	if !alive || first.Until == nil {
		return 1
	}
	g.until, g.grace = *first.Until, first.Grace
	if err := errors.Join(checkClock(), adopt()); err != nil {
		return g.failed(CodeFailed, err)
	}
	if g.until.Left() <= g.grace {
		return g.failed(CodeFailed, errors.New("no time was left to run the command in"))
	}
	if code, err := g.start(args); err != nil {
		return g.failed(code, err)
	}
	g.loop()
	return 0
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

func (g *guard) report(r report) { _ = g.reports.Encode(r) } // where nobody listens, orders has ended

func (g *guard) failed(code int, err error) int {
	g.report(report{Exited: &Status{Code: code, Failure: err.Error()}, Gone: true})
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
func (g *guard) start(args []string) (code int, err error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return codeOf(err), err
	}
	p, err := os.StartProcess(path, args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   ownGroup(),
	})
	if err != nil {
		return codeOf(err), err
	}
	g.pid = p.Pid
	_ = p.Release() // reap awaits it
	g.report(report{Started: g.pid})
	go g.reap()
	return 0, nil
}

// codeOf is the exit code for a command that did not start.
func codeOf(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return CodeNotFound
	}
	return CodeCannotStart
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

func (g *guard) loop() {
	orders := g.orders
	childless := false
	for !childless || !g.groupGone() {
		timer := time.NewTimer(g.next())
		select {
		case o, alive := <-orders:
			if !alive {
				orders = nil
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
		case <-timer.C:
		}
		timer.Stop()
		g.check()
	}
	g.report(report{Gone: true})
}

// next is how long nothing can become due.
func (g *guard) next() time.Duration {
	if g.status != nil || g.ending && g.killAt.Left() <= 0 {
		return rekill
	}
	left := g.until.Left()
	if g.ending {
		left = min(left, g.killAt.Left())
	} else {
		left -= g.grace
	}
	return min(max(left, 0), slice)
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
		_ = syscall.Kill(-g.pid, syscall.Signal(o.Signal))
	}
}

// check ends the command when its time has come, and kills it when that is over.
func (g *guard) check() {
	left := g.until.Left()
	if !g.ending && left <= g.grace {
		g.report(report{Ending: "the lease was not extended in time"})
		g.end(syscall.SIGTERM, g.grace)
	}
	if g.ending && (left <= 0 || g.killAt.Left() <= 0) {
		g.signal(syscall.SIGKILL)
	}
}

// end asks everything to end, and sets when it will be killed. Asked again, it only
// shortens that.
func (g *guard) end(s syscall.Signal, grace time.Duration) {
	if g.ending && g.killAt.Left() <= grace {
		return
	}
	g.ending, g.killAt = true, At(time.Now().Add(grace), grace)
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
// its members are looked up one by one, where that can be done.
func (g *guard) signal(s syscall.Signal) {
	below := descendants(os.Getpid())
	if g.status == nil || !canList {
		_ = syscall.Kill(-g.pid, s)
	}
	for _, pid := range below {
		if pgid, err := syscall.Getpgid(pid); g.status != nil || err == nil && pgid != g.pid {
			_ = syscall.Kill(pid, s)
		}
	}
}

// groupGone says whether the command's group has no member, where the guard's
// having no children does not say so already.
func (g *guard) groupGone() bool {
	return canList || errors.Is(syscall.Kill(-g.pid, 0), syscall.ESRCH)
}
