package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
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

// fullPipe is the end of a pipe into which nothing more fits. Read empties it once.
func fullPipe(t *testing.T) (w *os.File, read func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	fd := int(w.Fd())
	must(t, unix.SetNonblock(fd, true))
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; _, err = unix.Write(fd, bytes.Repeat([]byte("x"), size)) {
		}
	}
	must(t, unix.SetNonblock(fd, false))
	return w, func() string {
		must(t, r.SetReadDeadline(time.Now().Add(patience)))
		text := make([]byte, 1<<20)
		n, _ := r.Read(text)
		return strings.TrimLeft(string(text[:n]), "x")
	}
}

// fullSocket is a socket of systemd's of which nothing more is taken.
func fullSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify-") // a socket's path must be short
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unixgram"}
	c, err := net.ListenUnixgram("unixgram", at)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	for err == nil {
		err = unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: at.Name})
	}
	if err != unix.EAGAIN {
		t.Fatal(err)
	}
	return at.Name
}

// freeze has all hang that is done in a directory, as on a frozen file system, until thaw is called: it
// mounts a file system over it that answers nothing.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		stores.Missing(t, fmt.Sprintf("a file system that hangs cannot be made: %v", err))
	}
	if err := unix.Mount("hangs", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)); err != nil {
		_ = unix.Close(fd)
		stores.Missing(t, fmt.Sprintf("a file system that hangs cannot be mounted: %v: run as root", err))
	}
	over := false
	thaw = func() {
		if !over {
			over = true
			_ = unix.Unmount(dir, unix.MNT_DETACH)
			_ = unix.Close(fd) // what hangs fails now
		}
	}
	t.Cleanup(thaw)
	return thaw
}

// blocked is what a candidate writes to, and what of it hangs.
type blocked struct {
	dir, tmp, place string // of the ledger, of temporary files, of the store
	store           string
	stdout          *os.File // nil: nobody has it
	token           *bufio.Reader
	log             func() string // what is read of a blocked log, once
}

// block has what hang.
func (b *blocked) block(t *testing.T, what string) func(*exec.Cmd) {
	t.Helper()
	return func(c *exec.Cmd) {
		c.Env = append(c.Env, "TMPDIR="+b.tmp)
		if b.stdout != nil {
			c.Stdout = b.stdout
		}
		all := what == "all"
		if all || what == "stderr" {
			var full *os.File
			full, b.log = fullPipe(t)
			c.Stderr = full
		}
		if all && c.Stdout == nil || what == "stdout" {
			c.Stdout, _ = fullPipe(t)
		}
		if all || what == "notify" {
			c.Env = append(c.Env, "NOTIFY_SOCKET="+fullSocket(t), "WATCHDOG_USEC=200000")
		}
		if all || what == "ready" {
			full, _ := fullPipe(t)
			c.ExtraFiles = []*os.File{full}
			c.Env = append(c.Env, "LEADERELECT_READY_FD=3")
		}
	}
}

// Modes of leaderelect that tend a lease. Each notes in a ledger, which is its last argument, what it does
// as leader: child itself, hook's commands by lines.
var blockable = map[string]struct {
	args    []string
	command []string
	begun   string // is in the ledger then, or for hold in what it prints
	child   bool   // it runs child
	ends    string // is in the ledger when it has ended
	lost    int    // exit code when the store is lost: 0: it goes on
}{
	"run":        {[]string{"run", "--drain", "2s", "--restart-delay", "10ms"}, []string{"--", "child"}, "^beat", true, "^end", 0},
	"sidecar":    {[]string{"sidecar", "--listen", "127.0.0.1:0", "--drain", "2s", "--restart-delay", "10ms"}, []string{"--", "child"}, "^beat", true, "^end", 0},
	"shards run": {[]string{"shards", "run", "--shards", "1", "--drain", "2s", "--restart-delay", "10ms"}, []string{"--", "child"}, "^beat", true, "^end", 0},
	"hook":       {[]string{"hook", "--end-at-start=false", "--begin", `echo begin >>"$LEDGER"`, "--end", `echo "end $(date +%s%N)" >>"$LEDGER"`}, nil, "^begin", false, "^end", 0},
	"hold":       {[]string{"hold"}, nil, "", false, "", 125},
}

// begin starts a candidate in a mode, and returns when it leads.
func (b *blocked) begin(t *testing.T, mode, what string, more ...string) *candidate {
	t.Helper()
	m := blockable[mode]
	b.dir, b.tmp, b.place = t.TempDir(), t.TempDir(), t.TempDir()
	b.store = "file://" + filepath.Join(b.place, "election.json")
	if mode == "shards run" {
		b.store = "file://" + filepath.Join(b.place, "group")
	}
	args := append(slices.Clone(m.args), "--clocks", "shared", "--term", "3s", "--id", "a")
	args = append(append(append(args, more...), b.store), m.command...)
	if mode == "hold" {
		r, w, err := os.Pipe()
		must(t, err)
		t.Cleanup(func() { r.Close(); w.Close() })
		b.stdout, b.token = w, bufio.NewReader(r)
	}
	ledger := filepath.Join(b.dir, "ledger")
	block := b.block(t, what)
	c := launchAt(t, ledger, m.child, func(cmd *exec.Cmd) { block(cmd); cmd.Env = append(cmd.Env, "LEDGER="+ledger) }, args...)
	if mode == "hold" {
		if line, err := b.token.ReadString('\n'); err != nil || len(line) != 11 {
			t.Fatalf("hold has printed %q, %v", line, err)
		}
		return c
	}
	has(t, c.ledger, m.begun)
	return c
}

// If nobody reads what leaderelect writes, nothing that it does is late: it leads, starts a command
// again that has ended, and ends by a signal.
func TestNothingIsRead(t *testing.T) {
	t.Parallel()
	for mode, m := range blockable {
		t.Run(strings.ReplaceAll(mode, " ", "_"), func(t *testing.T) {
			t.Parallel()
			var b blocked
			c := b.begin(t, mode, "all")
			if m.child {
				text := has(t, c.ledger, `^start \d+ \d+`)
				pid, err := strconv.Atoi(strings.Fields(text)[2])
				must(t, err)
				_ = syscall.Kill(pid, syscall.SIGKILL)
				has(t, c.ledger, `(?s)^start .*\nstart `)
			}
			c.stops(t, 0)
			if m.ends != "" {
				has(t, c.ledger, m.ends)
			}
			if left := c.alive(); m.child && len(left) > 0 {
				t.Errorf("alive after the end: %v", left)
			}
			if mode == "shards run" {
				return
			}
			e, err := file.NewDecider(filepath.Join(b.place, "election.json"), nil).ReadCurrent(t.Context())
			if err != nil || !e.Vacant() || e.ElectionNumber == 0 {
				t.Errorf("the record is %+v, %v", e, err)
			}
		})
	}
}

// If something that it writes to hangs, a leader's work goes on. When the store is lost, that is over before the
// view is, and a signal ends it at once.
func TestWhateverHangs(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	for mode, m := range blockable {
		for _, what := range []string{"stderr", "stdout", "notify", "ready", "expiry", "tmp", "lifeline"} {
			if mode == "hold" && (what == "stdout" || what == "tmp") || mode == "shards run" && what == "expiry" || mode == "hook" && (what == "expiry" || what == "tmp") || what == "lifeline" && !strings.HasSuffix(mode, "run") {
				continue // it has none
			}
			for _, then := range []string{"asked to end", "lost", "hangs"} {
				if mode == "shards run" && then == "lost" || then == "hangs" && what != "stderr" {
					continue // the records of shards are in a directory; and one store that hangs will do
				}
				t.Run(strings.ReplaceAll(mode+"/"+what+"/"+then, " ", "_"), func(t *testing.T) {
					t.Parallel()
					var b blocked
					var more []string
					expiry, lifeline := t.TempDir(), ""
					switch what {
					case "expiry":
						more = []string{"--expiry-file", filepath.Join(expiry, "until")}
					case "lifeline":
						lifeline = inMemory(t)
						more = []string{"--lifeline", lifeline}
					}
					c := b.begin(t, mode, what, more...)
					switch what {
					case "expiry":
						freeze(t, expiry)
					case "tmp":
						freeze(t, b.tmp)
					case "lifeline":
						freeze(t, lifeline)
					}
					// The lease is extended, and a command outlives its first view.
					if m.child {
						first := readLedger(t, c.ledger)[0].at
						if !eventually(func() bool {
							all := readLedger(t, c.ledger)
							return all[len(all)-1].at.After(first.Add(4 * time.Second))
						}) {
							t.Fatal("the command does not outlive its first view")
						}
					} else {
						<-time.After(4 * time.Second)
					}
					if text, _ := os.ReadFile(c.ledger); m.child && bytes.Count(text, []byte("start ")) != 1 {
						t.Errorf("started again: %s", text)
					}
					begin := time.Now()
					if then == "asked to end" {
						want := 0
						if mode == "hold" && what == "expiry" {
							want = 125 // the lease runs out
						}
						c.stops(t, want)
						// Each of standard error, the supervisor and the file is given a little time.
						if took := time.Since(begin); took > 8*time.Second {
							t.Errorf("the end took %v", took)
						}
						return
					}
					record := filepath.Join(b.place, "election.json")
					thaw := func() {}
					if then == "hangs" {
						thaw = freeze(t, b.place)
					} else if err := errors.Join(os.Rename(record, record+".gone"), os.Mkdir(record, 0o755)); err != nil {
						t.Fatal(err)
					}
					over := b.over(t, mode, c)
					if then == "hangs" {
						if begin = time.Now(); mode != "hold" {
							c.stops(t, 0)
						}
						if took := time.Since(begin); took > 15*time.Second { // --drain, a term for what hangs, and the rest
							t.Errorf("the end took %v", took)
						}
						thaw()
					} else {
						record += ".gone"
					}
					if mode == "shards run" {
						record = filepath.Join(b.place, "group-seat-0") // whose view it was
					}
					e, err := file.NewDecider(record, nil).ReadCurrent(t.Context())
					must(t, err)
					if !over.Before(e.TermExpiry) {
						t.Errorf("it was over at %v, and the view ended at %v", over, e.TermExpiry)
					}
				})
			}
		}
	}
}

// inMemory is a directory for lifelines.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "leaderelect-test-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// over waits until what a leader does is over, and returns when that was.
func (b *blocked) over(t *testing.T, mode string, c *candidate) time.Time {
	t.Helper()
	switch {
	case blockable[mode].child:
		c.allDead(t)
		all := readLedger(t, c.ledger)
		return all[len(all)-1].at
	case mode == "hook":
		fields := strings.Fields(has(t, c.ledger, `^end \d+`))
		at, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		must(t, err)
		return time.Unix(0, at)
	}
	if code := c.code(t); code != blockable[mode].lost {
		t.Errorf("exit code %d, want %d", code, blockable[mode].lost)
	}
	return time.Now()
}
