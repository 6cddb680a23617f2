package lifeline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.said = bufio.NewScanner(out)
	return p
}

func (p *process) start(t *testing.T) *process {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
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

// memory returns a new directory in memory.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lifeline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func open(t *testing.T, dir string) *Lifeline {
	t.Helper()
	l, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
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

// stays fails the test if anything says that it is dead.
func stays(t *testing.T, l *Lifeline, name string, death <-chan struct{}) {
	t.Helper()
	for range 10_000 {
		alive(t, l, name)
	}
	if len(death) != 0 {
		t.Fatal("told of a death")
	}
}

func onDeath(t *testing.T, l *Lifeline, name string) <-chan struct{} {
	t.Helper()
	death := make(chan struct{}, 2)
	t.Cleanup(l.OnDeath(name, func() { death <- struct{}{} }))
	return death
}
