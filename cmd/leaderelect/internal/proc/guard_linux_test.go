package proc

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
)

// lines is a log to look at while it is written.
type lines struct{ logtest.Log }

// has waits for a text.
func (l *lines) has(t *testing.T, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q in the log", want), func() bool { return strings.Contains(l.String(), want) })
}

// Who kills by name what the command is called does not find its guard; nor does who
// kills this program by name. The guard says what it is.
func TestGuardGoesByAnotherName(t *testing.T) {
	p, pids := script(t, nil, `echo $$ >>$NOTES; exec sleep 600`)
	noted(t, pids, 1)
	of := "/proc/" + strconv.Itoa(p.guard.Pid)
	line, err := os.ReadFile(of + "/cmdline")
	must(t, err)
	if want := fmt.Sprintf("election-guard\x00guard\x00--of\x00%d\x00--files\x00%d\x00", os.Getpid(), 3+len(inherited())); string(line) != want {
		t.Errorf("its arguments are %q, want %q", line, want)
	}
	if name, err := os.ReadFile(of + "/comm"); err != nil || string(name) != "election-guard\n" {
		t.Errorf("its name is %q, %v", name, err)
	}
}

// leavesBehind leaves a process in a session of its own, which has nothing of the guard's environment.
const leavesBehind = `env -i N=$NOTES setsid sh -c 'sh -c "echo \$\$ >>$N; exec sleep 600" &'; echo $$ >>$NOTES; exec sleep 600`

// What a guard that is killed leaves behind is dead before Done is closed, even if it is in a
// session of its own, and has nothing of the guard's environment left.
func TestOrphans(t *testing.T) {
	p, pids := script(t, nil, leavesBehind)
	all := noted(t, pids, 2)
	_ = p.guard.Kill()
	if s := end(t, p); s.Code != CodeFailed || s.Failure != "its guard was killed" {
		t.Errorf("%+v", s)
	}
	allDead(t, all)
	if left, more := orphans(p.begun.Steady); len(left) > 0 || more {
		t.Errorf("left behind: %v, %v", left, more)
	}
	for _, pid := range all {
		if syscall.Kill(pid, 0) != syscall.ESRCH {
			t.Errorf("%d has not been awaited", pid)
		}
	}
}

// What this process has started by itself is no guard's.
func TestOrphansAreTheGuardsOwn(t *testing.T) {
	p, pids := script(t, nil, `echo $$ >>$NOTES; exec sleep 600`)
	noted(t, pids, 1)
	own := exec.Command("sleep", "600")
	must(t, own.Start())
	defer func() {
		_ = own.Process.Kill()
		_ = own.Wait()
	}()
	_ = p.guard.Kill()
	end(t, p)
	if len(alive([]int{own.Process.Pid})) == 0 {
		t.Error("killed what was not the guard's")
	}
}

// The same as the first process of a PID namespace, as in a container; even if
// /proc is that of another one, as after unshare --pid --fork.
func TestFirstProcess(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	const tests = "-test.run=^(TestKillAll|TestLeftBehind|TestOrphans|TestOrphansAreTheGuardsOwn|TestGuardStopped|TestReap)$"
	for name, command := range map[string][]string{
		"another /proc": {exe(t), tests},
		"its own /proc": {"sh", "-c", `mount -t proc proc /proc && exec "$@"`, "sh", exe(t), tests},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		switch {
		case cmd.Process == nil:
			stores.Missing(t, fmt.Sprintf("no PID namespace can be made: %v: run as root", err))
		case err != nil:
			t.Errorf("with %s: %v\n%s", name, err, out)
		}
	}
}

func exe(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	must(t, err)
	return path
}

// Orphans are awaited; what os/exec awaits is left to it.
func TestReap(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	must(t, adopt())
	defer reapAll()()
	for range 3 {
		out, err := exec.Command("sh", "-c", "sleep 0.2 >/dev/null & echo $!").Output()
		must(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		must(t, err)
		eventually(t, "end of the orphan", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	}
}

// nobody is a user that may not signal root.
const nobody = 65534

// install copies this test binary to path.
func install(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	from, err := os.Open(exe(t))
	must(t, err)
	defer from.Close()
	to, err := os.Create(path)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, errors.Join(err, to.Close(), os.Chmod(path, mode)))
}

// becomeRoot is what this test binary does as a setuid program. It notes its pid and
// what it has become, and ends when it is told to.
func becomeRoot() {
	_ = syscall.Setuid(0)
	_ = os.WriteFile(os.Args[1], fmt.Appendf(nil, "%d %d", os.Getpid(), os.Getuid()), 0o644)
	for {
		if _, err := os.Stat(os.Args[1] + ".end"); err == nil {
			os.Exit(0)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A command must not become another user, whom the guard may not signal: neither by
// itself nor further down. If that is allowed, it is said what it means.
func TestAnotherUser(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	if path := os.Getenv("BECOME_ROOT"); path != "" {
		asNobody(t, path)
		return
	}
	if os.Geteuid() != 0 {
		stores.Missing(t, "a setuid program cannot be made: run as root")
	}
	dir, err := os.MkdirTemp("", "setuid-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "become-root")
	install(t, path, 0o755|os.ModeSetuid)
	plain := filepath.Join(dir, "test")
	install(t, plain, 0o755)
	cmd := exec.Command(plain, "-test.run=^TestAnotherUser$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "BECOME_ROOT="+path, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func asNobody(t *testing.T, program string) {
	become := func(change func(*Spec), args ...string) (p *Process, log *lines, note string, pid int, user string) {
		note = filepath.Join(t.TempDir(), "note")
		log = &lines{}
		p = start(t, func(s *Spec) {
			s.Env = append(s.Env, "BECOME=root")
			s.Logger = slog.New(slog.NewTextHandler(log, nil))
			change(s)
		}, append(args, note)...)
		eventually(t, "note", func() bool {
			text, _ := os.ReadFile(note)
			n, _ := fmt.Sscan(string(text), &pid, &user)
			return n == 2
		})
		return p, log, note, pid, user
	}
	allow := func(s *Spec) { s.Setuid = true }

	p := start(t, nil, program, "unused")
	if s := end(t, p); s.Code != CodeCannotStart || !strings.Contains(s.Failure, "is a setuid program") || !strings.Contains(s.Failure, "--allow-setuid") {
		t.Errorf("%+v", s)
	}
	p, _, _, pid, user := become(func(*Spec) {}, "sh", "-c", `"$0" "$1"; :`, program)
	if user == "0" {
		t.Error("a command has become root, and could not be ended")
	}
	p.Kill()
	end(t, p)
	allDead(t, []int{pid})

	for _, fault := range []func(p *Process){
		func(p *Process) { p.Kill() },
		func(p *Process) { _ = p.guard.Kill() },
	} {
		p, log, note, pid, user := become(allow, program)
		if user != "0" {
			t.Fatalf("it is user %s", user)
		}
		fault(p)
		log.has(t, "runs as another user and cannot be ended")
		log.has(t, fmt.Sprintf(`process="%d (become-root, of user 0)"`, pid))
		select {
		case <-p.Done():
			t.Error("done, and it is alive")
		default:
		}
		if err := os.WriteFile(note+".end", nil, 0o644); err != nil { // only it can end itself
			t.Fatal(err)
		}
		end(t, p)
	}
}

// Arguments reach the command as they are, however long, and whatever they hold.
func TestArguments(t *testing.T) {
	args := []string{"printf", "%s\n", "", "--", "a b\n", "\xff\xfe", strings.Repeat("x", 100<<10), strings.Repeat("y", 100<<10)}
	if _, text := prints(t, nil, args...); text != strings.Join(args[2:], "\n")+"\n" {
		t.Errorf("%d bytes: %.50q", len(text), text)
	}
}

// A file that whoever started this program has left open is the command's, by the same number,
// and the guard's own are not.
func TestInheritedFiles(t *testing.T) {
	kept, err := os.Create(filepath.Join(t.TempDir(), "kept"))
	must(t, err)
	defer kept.Close()
	n, err := syscall.Dup(int(kept.Fd())) // without O_CLOEXEC
	must(t, err)
	defer syscall.Close(n)
	end(t, start(t, nil, "sh", "-c", `ls -l /proc/$$/fd >/proc/$$/fd/`+strconv.Itoa(n)))
	text, err := os.ReadFile(kept.Name())
	if err != nil || !strings.Contains(string(text), fmt.Sprintf(" %d -> %s\n", n, kept.Name())) {
		t.Errorf("%v; the command's files are\n%s", err, text)
	}
	for _, pipe := range regexp.MustCompile(`(\d+) -> pipe:`).FindAllStringSubmatch(string(text), -1) {
		if n, _ := strconv.Atoi(pipe[1]); !slices.Contains(inherited(), uintptr(n)) {
			t.Errorf("a pipe of the guard's, %d, is the command's:\n%s", n, text)
		}
	}
}

// What the candidate would have removed the guard removes if that is not there any
// more, and leaves alone if it is.
func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "own")
	file, other := filepath.Join(dir, "file"), filepath.Join(t.TempDir(), "other")
	for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(file, nil, 0o644), os.WriteFile(other, nil, 0o644)} {
		must(t, err)
	}
	remove := func(s *Spec) { s.Remove = []string{file, dir} }
	end(t, start(t, remove, "true"))
	if _, err := os.Stat(file); err != nil {
		t.Errorf("removed what the candidate removes: %v", err)
	}
	p, pids := script(t, remove, `echo $$ >>$NOTES; exec sleep 600`)
	noted(t, pids, 1)
	_ = p.pipe.Close() // as the candidate's death does
	if s := end(t, p); !s.Expired {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

// newAlarm is an alarm of the test's.
func newAlarm(t *testing.T) *Alarm {
	t.Helper()
	a, err := NewAlarm()
	must(t, err)
	t.Cleanup(a.Close)
	return a
}

// rings waits until the alarm does.
func rings(t *testing.T, a *Alarm) {
	t.Helper()
	select {
	case <-a.C:
	case <-time.After(patience):
		t.Fatalf("it does not ring within %v", patience)
	}
}

// An alarm rings by each of the two clocks, and not before. Each case has an alarm of its
// own: one whose time is past on both clocks may ring twice.
func TestAlarm(t *testing.T) {
	soon, late := in(100*time.Millisecond), in(time.Hour)
	for name, d := range map[string]Deadline{
		"the wall clock":    {Wall: soon.Wall, Steady: late.Steady},
		"the steady clock":  {Wall: late.Wall, Steady: soon.Steady},
		"both, in the past": in(-time.Hour),
		"no time at all":    {},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAlarm(t)
			a.Set(late)
			a.Set(d)
			rings(t, a)
			if left := d.Left(); left > 0 {
				t.Errorf("%v early", left)
			}
		})
	}
}

// An alarm that is set to a later time does not ring at the earlier one. That can be seen
// only if the later time was set before the earlier one came: a slow machine gets longer.
func TestAlarmSetLater(t *testing.T) {
	for d := 50 * time.Millisecond; ; d *= 2 {
		if d > patience {
			t.Fatalf("an alarm could not be set twice within %v", d/2)
		}
		a, other := newAlarm(t), newAlarm(t)
		soon := in(d)
		a.Set(soon)
		a.Set(in(time.Hour))
		if soon.Left() <= 0 {
			continue
		}
		other.Set(soon)
		rings(t, other)
		select {
		case <-a.C:
			t.Error("it rings an hour early")
		case <-time.After(50 * time.Millisecond):
		}
		return
	}
}

// The numbers of a namespace within are those that signals go to.
func TestTable(t *testing.T) {
	now, err := look()
	must(t, err)
	if pid, ok := now.local(now.self); !ok || pid != os.Getpid() {
		t.Errorf("this process is %d, want %d", pid, os.Getpid())
	}
	cmd := exec.Command("sleep", "600")
	must(t, cmd.Start())
	if all := descendants(); !slices.Contains(all, cmd.Process.Pid) {
		t.Errorf("%d is not among %v", cmd.Process.Pid, all)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func init() {
	become = map[string]func(){"root": becomeRoot, "headless": becomeHeadless, "candidate": becomeCandidate}
	if os.Getenv("BECOME") == "headless" {
		runtime.LockOSThread() // the first one
	}
}

// becomeHeadless has this process's first thread end, and others go on: it looks
// dead in the table of processes.
func becomeHeadless() {
	go func() {
		note, _ := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		for self, _ := stat(os.Getpid()); ; self, _ = stat(os.Getpid()) {
			if text, _ := os.ReadFile("/proc/self/stat"); strings.Contains(string(text), ") Z ") && !self.zombie {
				break
			}
			<-time.After(time.Millisecond)
		}
		fmt.Fprintln(note, os.Getpid())
		select {}
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A process of which only the first thread has ended is alive, and is killed, too, in a
// session of its own.
func TestHeadless(t *testing.T) {
	p, pids := script(t, func(s *Spec) { s.Env = append(s.Env, "BECOME=headless", "EXE="+exe(t)) }, `echo $$ >>$NOTES; setsid "$EXE" $NOTES & exec sleep 600`)
	all := noted(t, pids, 2)
	p.Kill()
	end(t, p)
	for _, pid := range all {
		if syscall.Kill(pid, 0) != syscall.ESRCH {
			t.Errorf("%d is there", pid)
		}
	}
}

// What is below a guard that lives is not what another has left behind.
func TestGuardKilledBesideOthers(t *testing.T) {
	p, pids := script(t, nil, leavesBehind)
	left := noted(t, pids, 2)
	// Both have begun after the one whose guard is killed.
	other, pids := script(t, nil, leavesBehind)
	kept := noted(t, pids, 2)
	_ = p.guard.Kill()
	end(t, p)
	if n := len(alive(left)); n > 0 {
		t.Errorf("%d processes of the dead guard are alive", n)
	}
	if n := len(alive(kept)); n != 2 {
		t.Errorf("of the other guard's processes %d are alive, want 2", n)
	}
	select {
	case <-other.Done():
		t.Errorf("the other guard's command has ended: %+v", other.Status())
	default:
	}
}

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
