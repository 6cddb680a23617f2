package proc

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

const stubborn = `trap "echo TERM >>$NOTES" TERM; setsid sh -c 'trap "" TERM; echo $$ >>$NOTES; while :; do sleep 0.05; done' & echo $$ >>$NOTES; while :; do sleep 0.05; done`

// A guard that is stopped goes on by itself when it has something to do, without its
// candidate: here that would act an hour later.
func TestStoppedGuardGoesOn(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(2*time.Second), time.Hour }, stubborn)
	all := noted(t, pids, 2)
	until := p.until
	_ = p.guard.Signal(syscall.SIGSTOP)
	if s := end(t, p); !s.Expired || !s.Killed || s.Failure != "" {
		t.Errorf("%+v", s)
	}
	if left := until.Left(); left > 0 || left < -900*time.Millisecond {
		t.Errorf("it ended with %v left", left)
	}
	allDead(t, all)
}

// Its time was moved on meanwhile: it finds that before it judges by the old one.
func TestExtendedWhileStopped(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(2*time.Second), time.Hour }, stubborn)
	all := noted(t, pids, 2)
	old := p.until
	_ = p.guard.Signal(syscall.SIGSTOP)
	p.Extend(in(time.Minute))
	<-time.After(old.Left() + 300*time.Millisecond)
	if left := alive(all); len(left) != 2 {
		t.Errorf("alive: %v of %v", left, all)
	}
	if state := stateOf(p.guard.Pid); state == "T" {
		t.Error("the guard is stopped")
	}
}

// One that is stopped again and again is killed by the kernel, which kills the command;
// what that had started is the candidate's to end.
func TestGuardStoppedForGood(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(2*time.Second), 200*time.Millisecond }, stubborn)
	all := noted(t, pids, 2)
	p.mu.Lock()
	p.late = time.Hour // the candidate waits
	until := p.until
	p.mu.Unlock()
	p.alarm.Set(in(time.Hour))
	for again := true; again; {
		_ = p.guard.Signal(syscall.SIGSTOP)
		select {
		case <-p.Done():
			again = false
		case <-time.After(time.Millisecond / 10):
			again = until.Left() > -patience
		}
	}
	if s := end(t, p); s.Failure != "its guard was killed" && !s.Killed { // it may have come to it in between
		t.Errorf("%+v", s)
	}
	if left := until.Left(); left > 0 || left < -900*time.Millisecond {
		t.Errorf("it ended with %v left", left)
	}
	allDead(t, all)
}

// becomeCandidate is what this test binary does as one that a test can stop: it runs a
// script until it is dead.
func becomeCandidate() {
	var life, late, grace time.Duration
	for i, d := range []*time.Duration{&life, &late, &grace} {
		var err error
		if *d, err = time.ParseDuration(os.Args[i+1]); err != nil {
			panic(err)
		}
	}
	_ = os.Unsetenv("BECOME") // the guard's is not this
	p, err := Start(Spec{Args: []string{"sh", "-c", stubborn}, Env: os.Environ(), Grace: grace, Until: in(life), Late: late, Logger: discard})
	if err != nil {
		panic(err)
	}
	<-p.Done()
	os.Exit(0)
}

const shortGrace = "100ms"

// stoppable is a candidate that is stopped, its guard, and what that guards.
func stoppable(t *testing.T, life, late time.Duration, grace string) (candidate *exec.Cmd, guard int, all []int, until Deadline) {
	t.Helper()
	stores.Nightly(t, "real processes by the wall clock")
	notes := filepath.Join(t.TempDir(), "pids")
	c := exec.Command(exe(t), life.String(), late.String(), grace)
	c.Env = append(os.Environ(), "BECOME=candidate", "NOTES="+notes)
	until = in(life)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	all = noted(t, func() []int { return pidsIn(notes) }, 2)
	t.Cleanup(func() { // if the test has failed, nobody else ends them
		for _, pid := range alive(all) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	now, err := look()
	must(t, err)
	for _, e := range now.all {
		if pid, ok := now.local(e.id); ok && pid == all[0] || ok && pid == all[1] {
			// The command's parent, or the grandchild's parent's.
			if parent, ok := now.local(e.parent); ok && parent != all[0] && parent != all[1] {
				guard = parent
			}
		}
	}
	if guard == 0 {
		t.Fatalf("no guard above %v", all)
	}
	_ = c.Process.Signal(syscall.SIGSTOP)
	return c, guard, all, until
}

// deadBy waits until all are dead, and wants them to be so by the deadline.
func deadBy(t *testing.T, all []int, until Deadline) {
	t.Helper()
	for len(alive(all)) > 0 {
		if until.Left() <= -patience {
			t.Fatalf("alive: %v", alive(all))
		}
		<-time.After(time.Millisecond)
	}
	t.Logf("dead with %v left", until.Left())
	if until.Left() < 0 {
		t.Errorf("dead %v after the deadline", -until.Left())
	}
}

// Both are stopped: all is dead at the deadline, long before the kernel would kill the
// guard. The candidate, which nothing needs, stays stopped.
func TestBothStopped(t *testing.T) {
	c, guard, all, until := stoppable(t, 2*time.Second, patience, shortGrace)
	_ = syscall.Kill(guard, syscall.SIGSTOP)
	deadBy(t, all, until.Sub(-patience/2))
	eventually(t, "end of the guard", func() bool { return len(alive([]int{guard})) == 0 })
	if state := stateOf(c.Process.Pid); state != "T" {
		t.Errorf("the candidate is in state %s, want T", state)
	}
}

// The candidate is killed, and the guard stopped: it is woken, and kills all, though later than it
// should be. Were it killed for that, nobody would end what has left the command's group.
func TestStoppedGuardThatIsAlone(t *testing.T) {
	c, guard, all, until := stoppable(t, 2*time.Second, time.Nanosecond, shortGrace)
	_ = syscall.Kill(guard, syscall.SIGSTOP)
	_ = c.Process.Kill()
	_ = c.Wait()
	deadBy(t, all, until.Sub(-patience/2))
}

// The same, but a debugger holds the guard, which has begun to end the command: it has its five
// seconds, and then the kernel kills it, and by that the command. What has left the command's
// group nobody ends. If debugging is forbidden, the guard is stopped again and again.
func TestHeldGuardThatIsAlone(t *testing.T) {
	const life, grace = 4 * time.Second, 3 * time.Second
	c, guard, all, until := stoppable(t, life, time.Nanosecond, grace.String())
	killed := in(0)
	_ = c.Process.Kill()
	_ = c.Wait()
	eventually(t, "the command's being asked to end", func() bool { return len(told(t, c)) > 0 })
	release, err := hold(guard)
	defer release()
	if err != nil {
		t.Logf("holding process %d: %v", guard, err)
	}
	inTime := err == nil && -killed.Left() < grace/2 // on a machine that starves it, it may have ended all before
	for len(alive([]int{guard, all[0]})) > 0 {
		if until.Left() < -aloneLate-patience {
			t.Fatalf("alive after the guard had to be dead: %v of the guard, %d, and its command, %d", alive([]int{guard, all[0]}), guard, all[0])
		}
		if err != nil {
			_ = syscall.Kill(guard, syscall.SIGSTOP)
		}
		<-time.After(time.Millisecond / 10)
	}
	if inTime && until.Left() > -aloneLate {
		t.Errorf("the guard is dead %v before its time", until.Left()+aloneLate)
	}
}

// told is what the command of a stoppable candidate has noted of signals.
func told(t *testing.T, c *exec.Cmd) (all []string) {
	t.Helper()
	notes, _ := strings.CutPrefix(c.Env[len(c.Env)-1], "NOTES=")
	text, _ := os.ReadFile(notes)
	for f := range strings.FieldsSeq(string(text)) {
		if f == "TERM" {
			all = append(all, f)
		}
	}
	return all
}

// hold holds a process as a debugger does, with all its threads, until release.
func hold(pid int) (release func(), err error) {
	const ptraceSeize, ptraceInterrupt = 0x4206, 0x4207
	held, over, gone := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread() // and never unlocked: what a thread holds is let go when it ends
		seen := map[string]bool{}
		for found := true; found; {
			found = false
			threads, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
			if err != nil {
				held <- err
				return
			}
			for _, e := range threads {
				if seen[e.Name()] {
					continue
				}
				found, seen[e.Name()] = true, true
				tid, _ := strconv.Atoi(e.Name())
				for _, request := range []uintptr{ptraceSeize, ptraceInterrupt} {
					if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, request, uintptr(tid), 0, 0, 0, 0); errno != 0 && errno != syscall.ESRCH {
						held <- os.NewSyscallError("ptrace", errno)
						return
					}
				}
			}
		}
		held <- nil
		<-over
	}()
	err = <-held
	return func() {
		close(over)
		<-gone
	}, err
}

// The candidate is stopped, and its guard killed, stopped or not: the kernel kills the
// command at once, and has the candidate go on, to end the rest.
func TestGuardKilledUnderAStoppedCandidate(t *testing.T) {
	for _, first := range []syscall.Signal{0, syscall.SIGSTOP} {
		c, guard, all, _ := stoppable(t, time.Hour, patience, shortGrace)
		at := in(time.Second)
		_ = syscall.Kill(guard, first)
		_ = syscall.Kill(guard, syscall.SIGKILL)
		deadBy(t, all, at)
		_ = c.Wait()
	}
}

// The guard begins before other packages are initialised: it needs nothing that sorts, and
// so is initialised, after it.
func TestGuardNeedsTheStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	must(t, err)
	if all := strings.Fields(string(out)); len(all) != 1 {
		t.Errorf("it is initialised after %v", all)
	}
}

// fill stops the guard, and orders signals that do nothing until the pipe takes no more: what is
// ordered now is lost. It reports whether the guard was there to be stopped.
func fill(t *testing.T, p *Process) bool {
	t.Helper()
	_ = p.guard.Signal(syscall.SIGSTOP)
	for stateOf(p.guard.Pid) != "T" {
		if stateOf(p.guard.Pid) == " " || zombie(p.guard.Pid) || p.until.Left() < 0 {
			return false
		}
		<-time.After(time.Millisecond)
	}
	for range 1 << 13 { // a pipe holds 64 KiB
		p.Signal(syscall.SIGCONT)
	}
	return true
}

// inTime has run do its part with longer and longer lives of a command, until one was long enough
// for this machine.
func inTime(t *testing.T, run func(t *testing.T, life time.Duration) bool) {
	t.Helper()
	for life := 2 * time.Second; !run(t, life); life *= 2 {
		if life > patience {
			t.Fatalf("this machine could not do it within %v", life)
		}
	}
}

// An order to end that does not reach the guard is waited for no longer than the guard may take
// to carry it out: then it is killed, with what it guards. The deadline is far.
func TestLostOrderToEnd(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	const grace = 200 * time.Millisecond
	for name, order := range map[string]func(p *Process){
		"kill":                 func(p *Process) { p.Kill() },
		"stop":                 func(p *Process) { p.Stop(syscall.SIGTERM, grace) },
		"stop, then again":     func(p *Process) { p.Stop(syscall.SIGTERM, grace); p.Stop(syscall.SIGTERM, time.Hour) },
		"kill, then stop":      func(p *Process) { p.Kill(); p.Stop(syscall.SIGTERM, time.Hour) },
		"stop, then kill":      func(p *Process) { p.Stop(syscall.SIGTERM, time.Hour); p.Kill() },
		"kill, then extension": func(p *Process) { p.Kill(); p.Extend(in(2 * time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			p, pids := script(t, func(s *Spec) {
				s.Until, s.Late, s.Logger = in(time.Hour), time.Hour, slog.New(slog.NewTextHandler(log, nil))
			}, stubborn)
			all := noted(t, pids, 2)
			if !fill(t, p) {
				t.Fatal("the guard is gone")
			}
			order(p)
			if s := end(t, p); s.Code != CodeFailed || s.Failure != "its guard was killed" {
				t.Errorf("%+v", s)
			}
			allDead(t, all)
			log.has(t, "the guard does not end the command in time; killing both")
		})
	}
}

// An extension that does not reach the guard does not extend: the guard ends the command by the
// deadline that it knows.
func TestLostExtension(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	inTime(t, func(t *testing.T, life time.Duration) bool {
		p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(life), time.Hour }, stubborn)
		until := p.until
		for len(pids()) < 2 && until.Left() > 0 {
			<-time.After(5 * time.Millisecond)
		}
		all := pids()
		if !fill(t, p) || until.Left() < life/4 || len(all) < 2 {
			p.Kill()
			return false
		}
		p.Extend(in(time.Hour))
		if s := end(t, p); !s.Expired || !s.Killed {
			t.Errorf("%+v", s)
		}
		if left := until.Left(); left > 0 {
			t.Errorf("it ended with %v left", left)
		}
		allDead(t, all)
		return true
	})
}

// The next extension makes up for one that was lost; and orders are taken after the deadline
// that the command had first, as before.
func TestExtensionAfterALostOne(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	const text = `trap "echo -1 >>$NOTES" USR1; trap "echo -2 >>$NOTES" USR2; trap "echo -3 >>$NOTES" HUP; trap "" TERM; echo $$ >>$NOTES; while :; do sleep 0.02; done`
	inTime(t, func(t *testing.T, life time.Duration) bool {
		p, pids := script(t, func(s *Spec) { s.Until, s.Late = in(life), time.Hour }, text)
		first := p.until
		before := func(d Deadline, is func() bool) bool { // reports whether it is, before d
			for !is() && d.Left() > 0 {
				<-time.After(5 * time.Millisecond)
			}
			return d.Left() > 0
		}
		// The guard has obeyed what was ordered before a signal that has come.
		obeyed := func(d Deadline, s syscall.Signal, note int) bool {
			return before(d, func() bool {
				p.Signal(s)
				return slices.Contains(pids(), note)
			})
		}
		late := func() bool { p.Kill(); return false }
		if !before(first, func() bool { return len(pids()) > 0 }) || !fill(t, p) {
			return late()
		}
		all := pids()[:1]
		p.Extend(in(time.Hour)) // is lost
		_ = p.guard.Signal(syscall.SIGCONT)
		if !obeyed(first, syscall.SIGUSR1, -1) {
			return late()
		}
		second := in(first.Left() + life)
		p.Extend(second)
		if !obeyed(first, syscall.SIGUSR2, -2) {
			return late()
		}
		before(first, func() bool { return false })
		p.Extend(in(time.Hour))
		if !obeyed(second, syscall.SIGHUP, -3) && len(alive(all)) > 0 {
			return late()
		}
		before(second.Sub(-500*time.Millisecond), func() bool { return len(alive(all)) == 0 })
		if len(alive(all)) == 0 {
			t.Fatalf("extended twice, it has ended: %+v", p.Status())
		}
		p.Kill()
		if s := end(t, p); !s.Killed || s.Expired || s.Signal != int(syscall.SIGKILL) {
			t.Errorf("%+v", s)
		}
		return true
	})
}
