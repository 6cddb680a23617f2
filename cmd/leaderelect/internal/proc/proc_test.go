//go:build unix

package proc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// become is what the test binary can be apart from the guard, by $BECOME.
var become map[string]func()

// The test binary is the guard, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == GuardCommand {
		os.Exit(Guard())
	}
	if as := become[os.Getenv("BECOME")]; as != nil {
		as()
	}
	// Under nohup the commands would ignore it, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// With the race detector each guard would take a second to exit.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// discard logs nothing.
var discard = slog.New(slog.DiscardHandler)

// start starts a command that may live for a minute unless it is told otherwise.
func start(t *testing.T, change func(*Spec), args ...string) *Process {
	t.Helper()
	s := Spec{Args: args, Env: os.Environ(), Grace: 100 * time.Millisecond, Until: in(time.Minute), Late: time.Second, Logger: discard}
	if change != nil {
		change(&s)
	}
	p, err := Start(s)
	must(t, err)
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
	})
	return p
}

// end waits until everything is dead.
func end(t *testing.T, p *Process) Status {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		t.Fatalf("alive after %v", patience)
	}
	return p.Status()
}

// script runs sh, with a file in which it notes pids as it goes.
func script(t *testing.T, change func(*Spec), text string) (p *Process, pids func() []int) {
	t.Helper()
	notes := filepath.Join(t.TempDir(), "pids")
	p = start(t, func(s *Spec) {
		s.Env = append(s.Env, "NOTES="+notes)
		if change != nil {
			change(s)
		}
	}, "sh", "-c", text)
	return p, func() []int { return pidsIn(notes) }
}

// pidsIn are those that a file has, among other words.
func pidsIn(notes string) (all []int) {
	text, _ := os.ReadFile(notes) // not there yet
	for f := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// noted waits until n pids have been.
func noted(t *testing.T, pids func() []int, n int) []int {
	t.Helper()
	eventually(t, fmt.Sprintf("note of %d pids", n), func() bool { return len(pids()) >= n })
	return pids()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

// prints starts a command, and returns all that it prints.
func prints(t *testing.T, change func(*Spec), args ...string) (p *Process, text string) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	p = start(t, func(s *Spec) {
		if s.Stdout = w; change != nil {
			change(s)
		}
	}, args...)
	w.Close()
	all, err := io.ReadAll(r)
	must(t, err)
	end(t, p)
	return p, string(all)
}

// alive are those of pids that are; one that is dead, but not awaited yet by who
// has inherited it, is not.
func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) && !zombie(pid) {
			left = append(left, pid)
		}
	}
	return left
}

func allDead(t *testing.T, pids []int) {
	t.Helper()
	if left := alive(pids); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
}

func zombie(pid int) bool { return strings.Contains("ZX", stateOf(pid)) }

// stateOf is a process's state in /proc: one letter, or a blank if there is none.
func stateOf(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, _ := strings.Cut(string(text), ") ")
	return (state + " ")[:1]
}

// A command's end is told as a shell would.
func TestStatus(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, []byte("no program"), 0o644))
	garbage := filepath.Join(t.TempDir(), "garbage")
	must(t, os.WriteFile(garbage, []byte("no program"), 0o755))
	for _, c := range []struct {
		args []string
		want Status
		fail bool
	}{
		{[]string{garbage}, Status{Code: CodeCannotStart, Unstarted: true}, true},
		{[]string{"true"}, Status{}, false},
		{[]string{"sh", "-c", "exit 3"}, Status{Code: 3}, false},
		{[]string{"sh", "-c", "kill -9 $$"}, Status{Code: 137, Signal: 9}, false},
		{[]string{"no-such-command"}, Status{Code: CodeNotFound, Unstarted: true}, true},
		{[]string{plain}, Status{Code: CodeCannotStart, Unstarted: true}, true},
	} {
		// A busy machine may take long to find that nothing is left running.
		got := end(t, start(t, func(s *Spec) { s.Grace = patience }, c.args...))
		if (got.Failure != "") != c.fail {
			t.Errorf("%q: %+v", c.args, got)
		}
		if got.Failure = ""; got != c.want {
			t.Errorf("%q: %+v, want %+v", c.args, got, c.want)
		}
	}
}

// If no time is left, the command is not even started.
func TestNoTimeLeft(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	p := start(t, func(s *Spec) { s.Grace = 2 * time.Minute }, "touch", ran) // more than there is
	if s := end(t, p); s.Code != CodeFailed || !s.Expired || !s.Unstarted || !strings.Contains(s.Failure, "no time was left") {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("it ran")
	}
}

// Kill reaches the whole process group, and on Linux what has left it.
func TestKillAll(t *testing.T) {
	text := `echo $$ >>$NOTES; sleep 600 & echo $! >>$NOTES; wait`
	if canList {
		text = `setsid sh -c 'echo $$ >>$NOTES; exec sleep 600' & ` + text
	}
	p, pids := script(t, nil, text)
	n := 2
	if canList {
		n = 3
	}
	all := noted(t, pids, n)
	p.Kill()
	if s := end(t, p); s.Code != 137 {
		t.Errorf("%+v", s)
	}
	allDead(t, all)
}

// What a command leaves running is ended before it counts as ended.
func TestLeftBehind(t *testing.T) {
	p, pids := script(t, nil, `(trap "" TERM; sleep 600; sleep 600) & echo $! >>$NOTES; exit 5`)
	if s := end(t, p); s.Code != 5 {
		t.Errorf("%+v", s)
	}
	allDead(t, pids())
}

// A command that ignores SIGTERM is dead at its deadline, which may be moved on.
func TestDeadline(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	p, pids := script(t, func(s *Spec) { s.Until = in(time.Second) }, `trap "" TERM; echo $$ >>$NOTES; while :; do sleep 0.1; done`)
	all := noted(t, pids, 1)
	until := in(1500 * time.Millisecond)
	p.Extend(until)
	s := end(t, p)
	if left := until.Left(); left > 0 || left < -900*time.Millisecond {
		t.Errorf("it ended with %v left", left)
	}
	if !s.Expired || s.Signal != int(syscall.SIGKILL) || len(alive(all)) > 0 {
		t.Errorf("%+v, alive: %v", s, alive(all))
	}
}

// Stop sends the signal that it is told, and kills after the grace that it is told.
func TestStop(t *testing.T) {
	p, pids := script(t, nil, `trap "exit 9" USR1; echo $$ >>$NOTES; while :; do sleep 0.05; done`)
	noted(t, pids, 1)
	p.Stop(syscall.SIGUSR1, patience)
	if s := end(t, p); s.Code != 9 || s.Expired || s.Killed || p.Pid() != pids()[0] {
		t.Errorf("process %d of %v: %+v", p.Pid(), pids(), s)
	}
	p, pids = script(t, nil, `trap "" USR1; echo $$ >>$NOTES; while :; do sleep 0.05; done`)
	noted(t, pids, 1)
	begin := time.Now()
	p.Stop(syscall.SIGUSR1, 200*time.Millisecond)
	if s := end(t, p); s.Signal != int(syscall.SIGKILL) || !s.Killed || time.Since(begin) < 200*time.Millisecond {
		t.Errorf("%+v after %v", s, time.Since(begin))
	}
}

// A signal that asks for a reload is the command's alone: its helpers may not expect it. One of a
// terminal's is for the whole group.
func TestSignalIsTheCommandsAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		s     syscall.Signal
		alone bool
	}{{"HUP", syscall.SIGHUP, true}, {"USR1", syscall.SIGUSR1, true}, {"USR2", syscall.SIGUSR2, true}, {"WINCH", syscall.SIGWINCH, false}} {
		// The helper says -1, the command -2 and then -3: it has had time to be told by then.
		text := `sh -c "trap \"echo -1 >>$NOTES\" ` + c.name + `; echo 1 >>$NOTES; while :; do sleep 0.02; done" & ` +
			`trap "echo -2 >>$NOTES" ` + c.name + `; trap "echo -3 >>$NOTES" ALRM; echo 2 >>$NOTES; while :; do sleep 0.02; done`
		p, pids := script(t, nil, text)
		noted(t, pids, 2)
		p.Signal(c.s)
		noted(t, pids, 3)
		if !c.alone {
			noted(t, pids, 4)
		}
		p.Signal(syscall.SIGALRM)
		for !slices.Contains(noted(t, pids, 4), -3) {
			<-time.After(5 * time.Millisecond)
		}
		if got := slices.Contains(pids(), -1); got == c.alone || !slices.Contains(pids(), -2) {
			t.Errorf("%s: the helper got it: %v: %v", c.name, got, pids())
		}
	}
}

// Of a command whose guard has died nothing has run for certain only if the guard had not yet begun to
// start it.
func TestUnstartedByADeadGuard(t *testing.T) {
	p := &Process{logger: discard}
	if s := p.Status(); !s.Unstarted {
		t.Errorf("%+v", s)
	}
	p.take(report{Starting: true})
	if s := p.Status(); s.Unstarted {
		t.Errorf("it may have run: %+v", s)
	}
	q, pids := script(t, nil, `echo $$ >>$NOTES; exec sleep 600`)
	noted(t, pids, 1)
	_ = q.guard.Kill()
	if s := end(t, q); s.Unstarted || s.Failure == "" {
		t.Errorf("it has run: %+v", s)
	}
}

// A guard that is stopped is killed with all that it guards, a little after the
// deadline.
func TestGuardStopped(t *testing.T) {
	p, pids := script(t, func(s *Spec) { s.Late = 100 * time.Millisecond }, `echo $$ >>$NOTES; sleep 600`)
	all := noted(t, pids, 1)
	_ = p.guard.Signal(syscall.SIGSTOP)
	p.Extend(in(600 * time.Millisecond)) // only now: it may take longer than that to start
	end(t, p)
	allDead(t, all)
}

// The command has its standard files, and none of the guard's own.
func TestFiles(t *testing.T) {
	_, text := prints(t, nil, "sh", "-c", `(: >&3) 2>/dev/null && echo 3 is open; (: >&4) 2>/dev/null && echo 4 is open; cat; echo done`)
	if text != "done\n" {
		t.Errorf("%q", text)
	}
}

// Of the two clocks the earlier counts, and both move together.
func TestDeadlineArithmetic(t *testing.T) {
	must(t, Check())
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if (got - want).Abs() > 5*time.Second {
			t.Errorf("%s: %v, want about %v", what, got, want)
		}
	}
	near("limited", At(time.Now().Add(time.Hour), time.Minute).Left(), time.Minute)
	near("not limited", At(time.Now().Add(time.Minute), time.Hour).Left(), time.Minute)
	near("earlier", in(time.Hour).Sub(time.Minute).Left(), 59*time.Minute)
	wall, steady := in(time.Hour), in(time.Hour)
	wall.Wall -= int64(2 * time.Hour)
	steady.Steady -= int64(2 * time.Hour)
	near("over by the wall clock", wall.Left(), -time.Hour)
	near("over by the steady clock", steady.Left(), -time.Hour)
}

// A guard that waits runs the command with the environment that it is told, and only that. If it
// was killed meanwhile another takes its place; if it was stopped it goes on.
func TestReady(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, r *Ready){
		"at once": func(*testing.T, *Ready) {},
		"killed": func(_ *testing.T, r *Ready) {
			_ = r.guard.Kill()
			<-r.ended
		},
		"stopped": func(_ *testing.T, r *Ready) { _ = r.guard.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			waited := 0
			p, got := prints(t, func(s *Spec) {
				r, err := Prepare(nil, s.Stdout, nil)
				must(t, err)
				waited = r.guard.Pid
				meanwhile(t, r)
				s.Env, s.Ready = []string{"A=1", "PATH=" + os.Getenv("PATH"), "B=x y"}, r
			}, "env")
			if same := p.guard.Pid == waited; same != (name != "killed") {
				t.Errorf("the guard that waited is the command's: %v", same)
			}
			if s := p.Status(); s.Code != 0 || s.Failure != "" {
				t.Errorf("it ended with %+v", s)
			}
			if want := "A=1\nPATH=" + os.Getenv("PATH") + "\nB=x y\n"; got != want {
				t.Errorf("its environment is %q, want %q", got, want)
			}
		})
	}
}

// A guard that waits has nothing to end: it ends when it is closed, and with its candidate.
func TestReadyEnds(t *testing.T) {
	r, err := Prepare(nil, nil, nil)
	must(t, err)
	pid := r.guard.Pid
	r.Close()
	if syscall.Kill(pid, 0) != syscall.ESRCH {
		t.Error("closed, it is alive")
	}
	r, err = Prepare(nil, nil, nil)
	must(t, err)
	_ = r.pipe.Close() // as by the end of this process
	select {
	case <-r.ended:
	case <-time.After(30 * time.Second):
		t.Error("without a candidate it waits on")
	}
	r.Close()
	var none *Ready
	none.Close()
}

// The command is looked for where its own environment says.
func TestCommandIsFoundByItsOwnPath(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/only-here", []byte("#!/bin/sh\nexit 7\n"), 0o700))
	for path, want := range map[string]int{dir: 7, "/nowhere": CodeNotFound} {
		p := start(t, func(s *Spec) { s.Env = []string{"PATH=" + path} }, "only-here")
		if s := end(t, p); s.Code != want {
			t.Errorf("in %s: %+v, want %d", path, s, want)
		}
	}
}

// A command need not have an environment at all; the guard's own is empty.
func TestWithoutAnEnvironment(t *testing.T) {
	env, err := exec.LookPath("env")
	must(t, err)
	if _, said := prints(t, func(s *Spec) { s.Env = nil }, env); said != "" {
		t.Errorf("it has %q", said)
	}
}

// What keeps a command from being started is known before it is to be.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", "/usr/bin:/bin")
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string // of the error; empty: it can be run, as far as can be seen
		code int
	}{
		"a script":                    {"#!/bin/sh\n", 0o755, "", 0},
		"spaces":                      {"#! /bin/sh -e\n", 0o755, "", 0},
		"no end of the line":          {"#!/bin/sh", 0o755, "", 0},
		"env":                         {"#!/usr/bin/env sh\n", 0o755, "", 0},
		"env with options":            {"#!/usr/bin/env -S A=b sh -e\n", 0o755, "", 0},
		"env with what is not parsed": {"#!/usr/bin/env -i nobody\n", 0o755, "", 0},
		"no script":                   {"\x7fELF", 0o755, "", 0},
		"empty":                       {"", 0o755, "", 0},
		"not to be read":              {"#!/no/such/thing\n", 0o111, "", 0},
		"not executable":              {"#!/bin/sh\n", 0o644, "permission denied", CodeCannotStart},
		"no interpreter":              {"#!/no/such/python\n", 0o755, `"/no/such/python"`, CodeCannotStart},
		"one that cannot be executed": {"#!/etc/passwd\n", 0o755, "permission denied", CodeCannotStart},
		"carriage return":             {"#!/bin/sh\r\necho\r\n", 0o755, "carriage return", CodeCannotStart},
		"env does not find it":        {"#!/usr/bin/env no-such-python\n", 0o755, `"no-such-python"`, CodeCannotStart},
		"env and carriage return":     {"#!/usr/bin/env sh\r\n", 0o755, "carriage return", CodeCannotStart},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		must(t, os.WriteFile(path, []byte(c.text), 0o644))
		must(t, os.Chmod(path, c.mode))
		if c.mode == 0o111 && os.Geteuid() == 0 {
			continue // root may read it
		}
		_, err := Find(path, false)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		} else if err != nil && CodeOf(err) != c.code {
			t.Errorf("%s: code %d, want %d", name, CodeOf(err), c.code)
		}
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nothing is what a guard must not report in a test: that would be followed by signals.
type nothing struct{ t *testing.T }

func (n nothing) Write(text []byte) (int, error) {
	n.t.Helper()
	n.t.Fatalf("the guard ends the command: %s", text)
	return 0, nil
}

// A guard whose time seems to be over, as when it was stopped, obeys what was ordered meanwhile
// before it judges: all of it, and with some time for it to be read.
func TestGuardHeedsWhatWasOrdered(t *testing.T) {
	const grace = time.Hour
	for name, until := range map[string]time.Duration{"the time is over": -time.Hour, "the grace has begun": grace / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &guard{orders: make(chan order), until: in(until), grace: grace, reports: json.NewEncoder(nothing{t})}
				over := make(chan struct{})
				go func() {
					for range 3 {
						time.Sleep(unread / 2)
						select {
						case g.orders <- order{}:
						case <-over:
						}
					}
					next := in(2 * grace)
					select {
					case g.orders <- order{Until: &next}:
					case <-over:
					}
				}()
				defer close(over)
				g.check()
				if g.ending || g.alone || g.until.Left() <= grace {
					t.Errorf("ending: %v, alone: %v, %v left", g.ending, g.alone, g.until.Left())
				}
			})
		})
	}
}

// Nothing is waited for if nothing is ordered, or if there is time; and who finds that the
// candidate is gone knows that it is alone, and has longer.
func TestGuardHeedsItsCandidatesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{orders: make(chan order), until: in(time.Hour), grace: time.Minute, reports: json.NewEncoder(nothing{t})}
		begun := time.Now()
		g.check()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it waits %v for orders, and has time", took)
		}
		g.ending, g.killAt = true, in(time.Minute)
		g.until = in(time.Second) // in the grace
		g.check()
		if took := time.Since(begun); took != 0 {
			t.Errorf("it waits %v for orders, and has begun to end the command", took)
		}
		g.heed()
		if took := time.Since(begun); took != unread || g.alone {
			t.Errorf("it waits %v for orders, want %v; alone: %v", took, unread, g.alone)
		}
		close(g.orders)
		begun = time.Now()
		if g.heed(); !g.alone || time.Since(begun) != 0 {
			t.Errorf("alone: %v after %v", g.alone, time.Since(begun))
		}
	})
}

// The number of a process that there is not: the greatest is less.
const noProcess = 1<<22 + 1

// Asked to end again, a guard only ends earlier; and it looks when the first of its times comes.
func TestGuardEndsEarlierOnly(t *testing.T) {
	within := func(what string, d Deadline, most time.Duration) {
		t.Helper()
		if left := d.Left(); left > most || left < most-time.Minute {
			t.Errorf("%s: in %v, want %v", what, left, most)
		}
	}
	const none = syscall.Signal(0) // reaches nobody
	g := &guard{pid: noProcess, ending: true, until: in(3 * time.Hour), killAt: in(2 * time.Hour), grace: time.Hour, refused: map[int]bool{}}
	g.end(none, 5*time.Hour)
	within("asked to end later", g.killAt, 2*time.Hour)
	within("it looks", g.due(), 2*time.Hour)
	g.end(none, time.Hour)
	within("asked to end earlier", g.killAt, time.Hour)
	g.until = in(30 * time.Minute)
	within("the deadline comes first", g.due(), 30*time.Minute)
	g.ending, g.until = false, in(3*time.Hour)
	within("it asks the command to end before its deadline", g.due(), 2*time.Hour)

	p := &Process{until: in(2 * time.Hour), late: time.Hour}
	within("a guard that is stuck", p.due(), 3*time.Hour)
	p.stopped, p.stopBy = true, in(5*time.Hour)
	within("a stop later", p.due(), 3*time.Hour)
	p.stopBy = in(time.Hour)
	within("a stop earlier", p.due(), time.Hour)
}

// A process that may not be signalled is told of once.
func TestDeniedIsToldOnce(t *testing.T) {
	var told bytes.Buffer
	g := &guard{reports: json.NewEncoder(&told), refused: map[int]bool{}}
	for range 3 {
		g.denied(noProcess, syscall.EPERM)
		g.denied(noProcess+1, syscall.ESRCH)
	}
	if text := told.String(); strings.Count(text, "denied") != 1 || strings.Count(text, "\n") != 1 {
		t.Errorf("%q", text)
	}
}
