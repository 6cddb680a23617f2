package lifeline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

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
