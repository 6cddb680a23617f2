// Package terminals runs a program of the examples as a page of docs tells its reader to.
package terminals

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/pages"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// patience is how long a test waits for what should happen soon, on a machine that is busy.
const patience = time.Minute

// Main runs the program in place of the tests, where the test binary was started as the
// program. Call it first in TestMain.
func Main(name string, main func()) {
	if filepath.Base(os.Args[0]) == name {
		main()
		os.Exit(0)
	}
}

// Page is a reader's directory, with the program in it.
type Page struct {
	t     testing.TB
	dir   string
	lines []string // of the page's first block of sh, each for a terminal of its own
	ports pages.Ports
	// Prints is the page's first block of text: what is printed.
	Prints string
}

// Open reads a page that tells how to start the program of that name.
func Open(t testing.TB, page, name string) *Page {
	t.Helper()
	p := &Page{t: t, dir: t.TempDir(), ports: pages.Ports{}}
	blocks, err := pages.Read(stores.Root(t), page)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		switch {
		case b.Lang == "sh" && p.lines == nil:
			p.lines = strings.Split(strings.TrimSpace(b.Text), "\n")
		case b.Lang == "text" && p.Prints == "":
			p.Prints = b.Text
		}
	}
	if p.lines == nil || p.Prints == "" {
		t.Fatalf("docs/%s does not say how to start %s, or what is printed", page, name)
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(p.dir, name)) // the program is this test binary
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Here is text with a free port in the place of each of the page's.
func (p *Page) Here(text string) string {
	here, err := p.ports.Here(text)
	if err != nil {
		p.t.Fatal(err)
	}
	return here
}

// Check fails unless the page's block of text is what was printed.
func (p *Page) Check(printed string) {
	p.t.Helper()
	if err := pages.Prints(p.Here(p.Prints), printed); err != nil {
		p.t.Error(err)
	}
}

// Terminal is one in which a line of the page was typed.
type Terminal struct {
	t     testing.TB
	cmd   *exec.Cmd
	out   string
	ended chan struct{}
}

// Type starts the i-th line of the page's block: an environment, and the program.
func (p *Page) Type(i int) *Terminal {
	p.t.Helper()
	t, line := p.t, p.Here(p.lines[i])
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// With exec and env it is the program that is interrupted, and no shell.
	s := &Terminal{t: t, cmd: exec.Command("/bin/sh", "-c", "exec env "+line), out: out.Name(), ended: make(chan struct{})}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = p.dir, out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // its code is looked at by Ends
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			t.Logf("%s\n%s", line, s.Log())
		}
	})
	return s
}

// Log is what was printed until now.
func (s *Terminal) Log() string {
	text, err := os.ReadFile(s.out)
	if err != nil {
		s.t.Error(err)
	}
	return string(text)
}

// Await waits until something was printed.
func (s *Terminal) Await(what string) {
	s.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for limit := time.After(patience); !strings.Contains(s.Log(), what); {
		select {
		case <-again.C:
		case <-s.ended:
			if !strings.Contains(s.Log(), what) {
				s.t.Fatalf("it has ended, and not said %q:\n%s", what, s.Log())
			}
		case <-limit:
			s.t.Fatalf("it has not said %q within %v:\n%s", what, patience, s.Log())
		}
	}
}

// CtrlC interrupts the program, and waits for its end.
func (s *Terminal) CtrlC() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Error(err)
	}
	s.Ends()
}

// Ends waits for the end, which must have the code 0.
func (s *Terminal) Ends() {
	s.t.Helper()
	select {
	case <-s.ended:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			s.t.Errorf("the exit code is %d:\n%s", code, s.Log())
		}
	case <-time.After(patience):
		s.t.Fatalf("it has not ended within %v:\n%s", patience, s.Log())
	}
}
