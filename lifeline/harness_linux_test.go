package lifeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A process of its own is this test's program, with a role.
func TestMain(m *testing.M) {
	if role := os.Getenv("LIFELINE_ROLE"); role != "" {
		if err := play(role, os.Getenv("LIFELINE_DIR"), os.Getenv("LIFELINE_NAMES")); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// play is what a process of a test does: it lives under its names, and says so.
func play(role, dir, names string) error {
	if before := places[role]; before != nil {
		var err error
		if dir, err = before(dir); err != nil {
			return err
		}
	}
	l, err := Dir(dir)
	if err != nil {
		return err
	}
	if f := provers[role]; f != nil {
		return f(l, names)
	}
	for _, n := range strings.Split(names, ",") {
		if err := l.Live(n); err != nil {
			return err
		}
	}
	switch role {
	case "busy": // threads that run while it is killed
		for range 4 {
			go func() {
				runtime.LockOSThread()
				for n := 0; ; n++ {
					_ = n
				}
			}()
		}
	case "exec": // becomes another program
		fmt.Println("alive")
		return syscall.Exec("/bin/cat", []string{"cat"}, nil)
	case "child": // passes its file on to a child, and ends
		cat := exec.Command("/bin/cat")
		cat.ExtraFiles = []*os.File{l.File()}
		cat.Stdin = os.NewFile(3, "the test's pipe")
		if err := cat.Start(); err != nil {
			return err
		}
		fmt.Println("alive")
		return nil
	case "forgetful": // a child that is given nothing outlives it
		cat := exec.Command("/bin/cat")
		cat.Stdin = os.NewFile(3, "the test's pipe")
		if err := cat.Start(); err != nil {
			return err
		}
	case "closer": // closes what is not its own
		closed := false
		for fd := 3; fd < 64; fd++ {
			if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && strings.HasPrefix(target, dir) && strings.Contains(target, "(deleted)") || strings.Contains(target, "/#") {
				syscall.Close(fd)
				closed = true
			}
		}
		if !closed || l.Live("C") == nil {
			return errors.New("its file was not closed")
		}
	case "panic":
		fmt.Println("alive")
		_, _ = io.Copy(io.Discard, os.Stdin)
		panic("on purpose")
	case "oom":
		fmt.Println("alive")
		_, _ = io.Copy(io.Discard, os.Stdin)
		var all [][]byte
		for range 1 << 10 { // a GiB: it ends then, if it has no limit
			all = append(all, bytes.Repeat([]byte{1}, 1<<20))
		}
		return fmt.Errorf("it has %d MiB, and was to be killed", len(all))
	}
	if f := hostile[role]; f != nil {
		if err := f(l); err != nil {
			return err
		}
	}
	fmt.Println("alive")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// process is one that plays a role.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	said  *bufio.Scanner
}

// begin starts a process, and returns when it lives.
func begin(t *testing.T, role, dir string, names ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), "LIFELINE_ROLE="+role, "LIFELINE_DIR="+dir, "LIFELINE_NAMES="+strings.Join(names, ","))
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out := must(p.StdoutPipe())(t)
	p.said = bufio.NewScanner(out)
	return p
}

func (p *process) start(t *testing.T) *process {
	t.Helper()
	works(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	p.until(t, "alive")
	return p
}

// startFed starts it with a pipe for its child, which ends when feed is closed.
func (p *process) startFed(t *testing.T) (feed *os.File) {
	t.Helper()
	fed, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fed.Close()
	p.ExtraFiles = []*os.File{fed}
	p.start(t)
	return feed
}

// until reads what it says, up to a line that begins so.
func (p *process) until(t *testing.T, begin string) string {
	t.Helper()
	for p.said.Scan() {
		switch line := p.said.Text(); {
		case strings.HasPrefix(line, begin):
			return line
		case strings.HasPrefix(line, "failed:"):
			t.Fatal(line)
		}
	}
	t.Fatalf("the process ended before it said %q", begin)
	return ""
}

// must is for what has to work: must(f())(t) is the result of f.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// works fails the test unless all has worked.
func works(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// memory returns a new directory in memory.
func memory(t *testing.T) string {
	t.Helper()
	dir := must(os.MkdirTemp("/dev/shm", "lifeline-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(t *testing.T, dir string) *Lifeline {
	t.Helper()
	l := must(Dir(dir))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// newLine is one in a new directory.
func newLine(t *testing.T) *Lifeline {
	t.Helper()
	return open(t, memory(t))
}

// scene is a process that plays a role in a new directory, and another's view of it.
func scene(t *testing.T, role string, names ...string) (*Lifeline, *process) {
	t.Helper()
	l := newLine(t)
	return l, begin(t, role, l.path, names...).start(t)
}

// killed has a process that was killed, and is proved dead.
func killed(t *testing.T, name string) *Lifeline {
	t.Helper()
	l, p := scene(t, "live", name)
	p.kill()
	told(t, onDeath(t, l, name))
	return l
}

// livesUntil fails the test if a name is proved dead, or its death is told, before end ends its process, or
// not after it.
func livesUntil(t *testing.T, l *Lifeline, name string, death <-chan struct{}, end func()) {
	t.Helper()
	for range 10_000 {
		alive(t, l, name)
	}
	if len(death) != 0 {
		t.Fatal("told of a death")
	}
	end()
	told(t, death)
}

// kill ends a process.
func (p *process) kill() { _ = p.Process.Kill() }

// asRoot reports whether the test may do what needs root.
func asRoot(t *testing.T, what string) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("needs root:", what)
		return false
	}
	return true
}

// told waits for the news of a death; alive says that none may have come.
func told(t *testing.T, death <-chan struct{}) {
	t.Helper()
	select {
	case <-death:
	case <-time.After(time.Minute):
		t.Fatal("not told of the death within a minute")
	}
}

func alive(t *testing.T, l *Lifeline, name string) {
	t.Helper()
	if l.Dead(name) {
		t.Fatalf("%s is said to be dead", name)
	}
}

func onDeath(t *testing.T, l *Lifeline, name string) <-chan struct{} {
	t.Helper()
	death := make(chan struct{}, 2)
	t.Cleanup(l.OnDeath(name, func() { death <- struct{}{} }))
	return death
}

// The main thread is the one that a process is known by: see the role "threads".
func init() {
	if os.Getenv("LIFELINE_ROLE") == "threads" {
		runtime.LockOSThread()
	}
}

// places are what roles do before they open their directory, and which one that is.
var places = map[string]func(dir string) (string, error){
	"bound": func(dir string) (string, error) { // mounted twice
		again := dir + "-again"
		return again, errors.Join(private(), os.Mkdir(again, 0o700), syscall.Mount(dir, again, "", syscall.MS_BIND, ""))
	},
	"covered": func(dir string) (string, error) { // mounted over
		return dir, errors.Join(private(), syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700"))
	},
	"full": func(dir string) (string, error) {
		return dir, errors.Join(private(), syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=4k"), os.WriteFile(filepath.Join(dir, "fill"), []byte("x"), 0o600))
	},
	"unwatched": func(dir string) (string, error) {
		return dir, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("0"), 0)
	},
}

// private keeps what is mounted here from everybody else.
func private() error { return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "") }

// provers are roles that live under no name, and look at the names of others.
var provers = map[string]func(l *Lifeline, name string) error{
	"prover": look, "covered": look, "bound prover": look,
	"unwatched": func(l *Lifeline, name string) error {
		told := make(chan struct{})
		defer l.OnDeath(name, func() { close(told) })()
		l.watches.mu.Lock()
		polled := l.watches.polling
		l.watches.mu.Unlock()
		if !polled {
			return errors.New("the kernel has given it a watch")
		}
		fmt.Println("alive")
		<-told
		fmt.Println("told")
		return nil
	},
	"full": func(l *Lifeline, name string) error {
		if err := l.Live(name); !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("a name in a full tmpfs: %v", err)
		}
		if _, err := os.Stat(filepath.Join(l.path, name)); !errors.Is(err, os.ErrNotExist) || l.Dead(name) {
			return fmt.Errorf("its name: %v, dead: %v", err, l.Dead(name))
		}
		if err := errors.Join(os.Remove(filepath.Join(l.path, "fill")), l.Live(name), os.WriteFile(filepath.Join(l.path, "fill"), nil, 0o600)); err != nil {
			return err
		}
		if l.Dead(name) {
			return errors.New("this process is said to be dead")
		}
		fmt.Println("alive")
		return nil
	},
}

// look says for each line that it reads whether a name is proved dead.
func look(l *Lifeline, name string) error {
	told := make(chan struct{}, 1)
	defer l.OnDeath(name, func() { told <- struct{}{} })()
	fmt.Println("alive")
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil {
			return nil
		}
		fmt.Println("dead:", l.Dead(name) || len(told) > 0)
	}
}

// ask asks a prover.
func (p *process) ask(t interface {
	Helper()
	Fatal(...any)
}) bool {
	t.Helper()
	if _, err := p.stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	for p.said.Scan() {
		if is, found := strings.CutPrefix(p.said.Text(), "dead: "); found {
			return is == "true"
		}
	}
	t.Fatal("the prover has ended")
	return false
}

// hostile are roles of processes that live under their names already.
var hostile = map[string]func(l *Lifeline) error{
	"fork": func(*Lifeline) error { // a child that has not become another program
		child, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if child == 0 {
			for { // all that it may do: it has no other threads
				_, _, _ = syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
			}
		}
		fmt.Println("child", child)
		return nil
	},
	"threads": func(*Lifeline) error { // whose first thread ends before the others
		fmt.Println("alive")
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
		return nil
	},
	"unlocker": func(l *Lifeline) error { // whose child gives up the lock that was passed on
		c := exec.Command("/usr/bin/flock", "--unlock", "3")
		c.ExtraFiles = []*os.File{l.File()}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("flock: %w: %s", err, out)
		}
		return nil
	},
	"relocked": func(l *Lifeline) error { // and that lives on, as a leader does, and has a child
		if err := errors.Join(syscall.Flock(int(l.File().Fd()), syscall.LOCK_UN), l.Live("A")); err != nil {
			return err
		}
		cat := exec.Command("/bin/cat")
		cat.ExtraFiles = []*os.File{l.File()}
		cat.Stdin = os.NewFile(3, "the test's pipe")
		return cat.Start()
	},
	"humbled": func(l *Lifeline) error { // it cannot remove its names any more
		if err := syscall.Setuid(65533); err != nil {
			return err
		}
		if l.End("A") == nil || l.Close() == nil { // A first, and then B
			return errors.New("its names were removed")
		}
		return nil
	},
	"unreadable": func(l *Lifeline) error { return l.file.Chmod(0) },
	"humbled closer": func(l *Lifeline) error { // nor unsay them
		if err := errors.Join(syscall.Close(int(l.file.Fd())), syscall.Setuid(65533)); err != nil {
			return err
		}
		if l.Close() == nil {
			return errors.New("its names were removed")
		}
		return nil
	},
	"stuck": func(*Lifeline) error { // in a system call that nothing interrupts
		fmt.Println("alive")
		f, err := os.Create(os.Getenv("LIFELINE_FROZEN"))
		if err == nil {
			_, err = f.Write([]byte("x"))
		}
		return err
	},
	"spawner": func(*Lifeline) error { // it starts one program after another
		for range 4 {
			go func() {
				for {
					_ = exec.Command("/bin/true").Run()
				}
			}()
		}
		return nil
	},
	"churn": func(l *Lifeline) error { // campaigns that come and go alongside the one that lasts
		for i := range 4 {
			go func() {
				for n := 0; ; n++ {
					name := fmt.Sprint("C", os.Getpid(), "-", i, "-", n%50)
					if err := errors.Join(l.Live(name), l.End(name)); err != nil {
						fmt.Println("failed:", err)
						os.Exit(1)
					}
					time.Sleep(time.Millisecond)
				}
			}()
		}
		return nil
	},
}
