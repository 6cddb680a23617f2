package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// candidate is a leaderelect that a test has started.
type candidate struct {
	*exec.Cmd
	log    string
	ledger string
	ended  chan struct{}
}

// launch starts leaderelect with a ledger, which child is given last.
func launch(t *testing.T, change func(*exec.Cmd), args ...string) *candidate {
	t.Helper()
	return launchAt(t, filepath.Join(t.TempDir(), "ledger"), true, change, args...)
}

// launchAt is launch with that ledger, which is the last argument if it is to be.
func launchAt(t *testing.T, ledger string, last bool, change func(*exec.Cmd), args ...string) *candidate {
	t.Helper()
	dir := t.TempDir()
	c := &candidate{log: filepath.Join(dir, "log"), ledger: ledger, ended: make(chan struct{})}
	if last {
		args = append(args, ledger)
	}
	c.Cmd = exec.Command("leaderelect", args...)
	c.Env = append(os.Environ(), "TMPDIR="+dir)
	log, err := os.Create(c.log)
	must(t, err)
	defer log.Close()
	c.Stderr = log
	if change != nil {
		change(c.Cmd)
	}
	must(t, c.Start())
	go func() {
		defer close(c.ended)
		_ = c.Wait() // code looks at what is told
	}()
	t.Cleanup(func() {
		c.kill()
		if text, _ := os.ReadFile(c.log); t.Failed() {
			lines := strings.Split(string(text), "\n")
			t.Logf("leaderelect %s:\n%s", strings.Join(args, " "), strings.Join(lines[max(0, len(lines)-100):], "\n"))
		}
	})
	return c
}

func (c *candidate) signal(s syscall.Signal) { _ = c.Process.Signal(s) }

// kill ends it for good, and waits for its guard to have ended its command.
func (c *candidate) kill() {
	guards := children(c.Process.Pid)
	c.signal(syscall.SIGKILL)
	<-c.ended
	eventually(func() bool {
		return !slices.ContainsFunc(guards, func(guard int) bool { return syscall.Kill(guard, 0) == nil })
	})
}

// code waits for the end, and returns the exit code.
func (c *candidate) code(t *testing.T) int {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatalf("leaderelect has not ended within %v", patience)
	}
	return c.ProcessState.ExitCode()
}

// stops asks it to end, and wants it to do so with that exit code.
func (c *candidate) stops(t *testing.T, want int) {
	t.Helper()
	c.signal(syscall.SIGTERM)
	if code := c.code(t); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
}

// has waits until a file has a match.
func has(t *testing.T, path, pattern string) string {
	t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	var text []byte
	if !eventually(func() bool { text, _ = os.ReadFile(path); return re.Match(text) }) {
		t.Fatalf("%s has no match of %s within %v:\n%s", path, pattern, patience, text)
	}
	return string(text)
}

// alive are the processes of the ledger that are.
func (c *candidate) alive() []int {
	text, _ := os.ReadFile(c.ledger)
	return living(string(text))
}

// allDead waits until all processes of the ledger are dead.
func (c *candidate) allDead(t *testing.T) {
	t.Helper()
	if !eventually(func() bool { return len(c.alive()) == 0 }) {
		t.Fatalf("alive after %v: %v", patience, c.alive())
	}
}

// place is an election on NATS, and a decider that looks at it past any proxy.
func place(t *testing.T, server *stores.NATSServer, addr string) (string, *natskv.Decider) {
	t.Helper()
	form := "nats://%s/faults/" + regexp.MustCompile(`\W`).ReplaceAllString(t.Name(), "-") + "?create=true&storage=memory"
	u, err := url.Parse(fmt.Sprintf(form, server.Addr))
	must(t, err)
	d, err := natskv.Open(t.Context(), u)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return fmt.Sprintf(form, addr), d
}

// A command that ignores SIGTERM is dead when the view ends, whatever has happened
// to the store and to who watches it: not a moment later.
func TestDeadWhenTheViewEnds(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	server := stores.NATS(t)
	const skew = 500 * time.Millisecond
	for name, fault := range map[string]func(*candidate, *stores.Relay){
		"the store is cut off":     func(_ *candidate, p *stores.Relay) { p.Cut() },
		"the candidate is stopped": func(c *candidate, _ *stores.Relay) { c.signal(syscall.SIGSTOP) },
		"the candidate is killed":  func(c *candidate, _ *stores.Relay) { _ = c.Process.Kill() },
		"the guard is stopped and the store cut off": func(c *candidate, p *stores.Relay) {
			for _, guard := range children(c.Process.Pid) {
				_ = syscall.Kill(guard, syscall.SIGSTOP)
			}
			p.Cut()
		},
		"the guard and the candidate are stopped": func(c *candidate, _ *stores.Relay) {
			for _, guard := range children(c.Process.Pid) {
				_ = syscall.Kill(guard, syscall.SIGSTOP)
			}
			c.signal(syscall.SIGSTOP)
		},
		"the candidate is stopped, and the guard again and again": func(c *candidate, _ *stores.Relay) {
			guards := children(c.Process.Pid)
			c.signal(syscall.SIGSTOP)
			go func() {
				for _, guard := range guards {
					for syscall.Kill(guard, syscall.SIGSTOP) == nil {
						<-time.After(time.Millisecond)
					}
				}
			}()
		},
		"the candidate is stopped, and the guard killed": func(c *candidate, p *stores.Relay) {
			p.Cut() // it goes on, and would extend the lease
			guards := children(c.Process.Pid)
			c.signal(syscall.SIGSTOP)
			for _, guard := range guards {
				_ = syscall.Kill(guard, syscall.SIGKILL)
			}
		},
		"asked to end, and the store cut off": func(c *candidate, p *stores.Relay) {
			p.Cut()
			c.signal(syscall.SIGTERM)
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			p := stores.NewRelay(t, server.Addr)
			u, d := place(t, server, p.Addr)
			c := launch(t, nil, "run", "--id", "a", "--term", "6s", "--skew", skew.String(), "--drain", "1h", u, "--", "child", "stubborn", "escapes")
			has(t, c.ledger, "^beat")
			fault(c, p)
			c.allDead(t)
			e, err := d.ReadCurrent(t.Context())
			must(t, err)
			all := readLedger(t, c.ledger)
			end, last := e.TermExpiry.Add(-skew), all[len(all)-1].at
			t.Logf("the last beat was %v before the view's end", end.Sub(last))
			if !last.Before(end) {
				t.Errorf("the command ran until %v, and the view ended at %v", last, end)
			}
			if e.Vacant() && !strings.Contains(name, "asked") {
				t.Errorf("released: %+v", e)
			}
		})
	}
}

// If the guard is killed the kernel kills the command at once, leaderelect what that has started, and the same
// leader starts it again: also as the first process of a PID namespace, as in a container.
func TestGuardKilled(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	for name, flags := range map[string]uintptr{"one of many": 0, "the first process": syscall.CLONE_NEWPID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := launch(t, func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags} },
				"run", "--restart-delay", "10ms", "--drain", "1s", "file://"+filepath.Join(t.TempDir(), "election.json"), "--", "child", "stubborn", "escapes")
			has(t, c.ledger, "(?s)start.*start")
			guards := children(c.Process.Pid)
			if len(guards) != 1 {
				t.Fatalf("the guards are %v", guards)
			}
			below := children(guards[0])
			for _, pid := range below {
				below = append(below, children(pid)...)
			}
			if len(below) < 2 {
				t.Errorf("there was only %v", below)
			}
			must(t, syscall.Kill(guards[0], syscall.SIGKILL))
			has(t, c.log, "the guard is dead")
			for _, pid := range below {
				if !eventually(func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }) { // awaited, too
					t.Errorf("process %d is there", pid)
				}
			}
			has(t, c.ledger, `(?s)(start 1\d{9} .*){4}`)
			c.stops(t, 137)                                     // it had to be killed
			if left := c.alive(); flags == 0 && len(left) > 0 { // those of a namespace have other numbers here
				t.Errorf("alive after the end: %v", left)
			}
		})
	}
}

// Who kills by the command's words kills the command and leaderelect, whose arguments
// they are, and not the guard: it ends the rest, and leaves nothing in the temp directory.
func TestKilledByName(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	dir := t.TempDir()
	c := launch(t, nil, "run", "--grace", "200ms", "file://"+filepath.Join(dir, "election.json"), "--", "child", "stubborn", "escapes")
	has(t, c.ledger, "(?s)start.*start")
	killed := 0
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		line, _ := os.ReadFile(path) // one that has ended
		if strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), "child stubborn escapes "+c.ledger) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			must(t, err)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			killed++
		}
	}
	if killed != 2 {
		t.Errorf("%d processes have the command's words, want leaderelect and the command", killed)
	}
	c.allDead(t)
	if !eventually(func() bool {
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.ledger), "leaderelect-*"))
		return len(left) == 0
	}) {
		t.Error("a directory is left behind")
	}
}

// A terminal that is closed ends leaderelect in good order.
func TestClosedTerminal(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	t.Parallel()
	record := filepath.Join(t.TempDir(), "election.json")
	ptmx, tty := pty(t)
	c := launch(t, func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout = tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}, "run", "--id", "a", "file://"+record, "--", "child")
	tty.Close()
	has(t, c.ledger, "^beat")
	ptmx.Close()
	if code := c.code(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	has(t, c.ledger, "^asked-SIGHUP|^got-SIGHUP")
	if left := c.alive(); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
	if e, err := file.NewDecider(record, nil).ReadCurrent(t.Context()); err != nil || !e.Vacant() || e.ElectionNumber == 0 {
		t.Errorf("the record is %+v, %v", e, err)
	}
}

// pty is a new pseudo-terminal.
func pty(t *testing.T) (ptmx, tty *os.File) {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { ptmx.Close() })
	must(t, unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	must(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { tty.Close() })
	return ptmx, tty
}
