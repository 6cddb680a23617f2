//go:build unix

package proc

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

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
			out, in_, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			r, err := Prepare(nil, in_, nil)
			if err != nil {
				t.Fatal(err)
			}
			waited := r.guard.Pid
			meanwhile(t, r)
			p, err := Start(Spec{Args: []string{"env"}, Env: []string{"A=1", "PATH=" + os.Getenv("PATH"), "B=x y"}, Stdout: in_,
				Grace: 100 * time.Millisecond, Until: in(time.Minute), Late: time.Second, Logger: discard, Ready: r})
			if err != nil {
				t.Fatal(err)
			}
			if same := p.guard.Pid == waited; same != (name != "killed") {
				t.Errorf("the guard that waited is the command's: %v", same)
			}
			in_.Close()
			end(t, p)
			if s := p.Status(); s.Code != 0 || s.Failure != "" {
				t.Errorf("it ended with %+v", s)
			}
			said := make([]byte, 64<<10)
			n, _ := out.Read(said)
			if got, want := string(said[:n]), "A=1\nPATH="+os.Getenv("PATH")+"\nB=x y\n"; got != want {
				t.Errorf("its environment is %q, want %q", got, want)
			}
		})
	}
}

// A guard that waits has nothing to end: it ends when it is closed, and with its candidate.
func TestReadyEnds(t *testing.T) {
	r, err := Prepare(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := r.guard.Pid
	r.Close()
	if syscall.Kill(pid, 0) != syscall.ESRCH {
		t.Error("closed, it is alive")
	}
	r, err = Prepare(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(dir+"/only-here", []byte("#!/bin/sh\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{dir: 7, "/nowhere": CodeNotFound} {
		p, err := Start(Spec{Args: []string{"only-here"}, Env: []string{"PATH=" + path}, Grace: 100 * time.Millisecond, Until: in(time.Minute), Late: time.Second, Logger: discard})
		if err != nil {
			t.Fatal(err)
		}
		end(t, p)
		if s := p.Status(); s.Code != want {
			t.Errorf("in %s: %+v, want %d", path, s, want)
		}
	}
}

// A command need not have an environment at all; the guard's own is empty.
func TestWithoutAnEnvironment(t *testing.T) {
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	out, in_, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := Start(Spec{Args: []string{env}, Stdout: in_, Grace: 100 * time.Millisecond, Until: in(time.Minute), Late: time.Second, Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	in_.Close()
	end(t, p)
	said := make([]byte, 1000)
	if n, _ := out.Read(said); n > 0 {
		t.Errorf("it has %q", strings.TrimSpace(string(said[:n])))
	}
}
