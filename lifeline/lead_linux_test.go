//go:build go1.25

package lifeline_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/lifeline"
)

// A candidate of its own process: this test's program.
func init() {
	record := os.Getenv("LIFELINE_RECORD")
	if record == "" {
		return
	}
	if err := stand(record, os.Getenv("LIFELINE_DIR")); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// candidate is one whose term nobody waits for in a test.
func candidate(record, dir, id string) (le.Config, error) {
	line, err := lifeline.Dir(dir)
	return le.Config{Decider: file.NewDecider(record, nil), LeaderID: id, TermLength: 10 * time.Minute, ClockPolicy: le.SharedClock, Lifeline: line}, err
}

func stand(record, dir string) error {
	c, err := candidate(record, dir, "child")
	if err != nil {
		return err
	}
	before, leave := context.WithCancel(context.Background())
	defer leave()
	for _, ctx := range []context.Context{before, context.Background()} { // its second campaign is as provable as its first
		campaign, err := c.Start(ctx)
		if err != nil {
			return err
		}
		l, err := campaign.Lead(ctx)
		if err != nil {
			return err
		}
		if ctx == before {
			l.Release()
			leave()
			<-campaign.Done()
		}
	}
	fmt.Println("leads")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
	return nil
}

// child starts a leader.
func child(t *testing.T, record, dir string) *exec.Cmd {
	t.Helper()
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), "LIFELINE_RECORD="+record, "LIFELINE_DIR="+dir)
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	said := bufio.NewScanner(out)
	for said.Scan() {
		if said.Text() == "leads" {
			return p
		}
		if strings.HasPrefix(said.Text(), "failed:") {
			t.Fatal(said.Text())
		}
	}
	t.Fatal("it ended before it led")
	return nil
}

// A leader's process is killed, with a term of ten minutes: the standby on its machine leads, and so
// does a process that is started after it. One that is stopped is waited for.
func TestStandbyLeadsWhenTheProcessDies(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	dir, err := os.MkdirTemp("/dev/shm", "lifeline-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	record := filepath.Join(t.TempDir(), "record")
	first := child(t, record, dir)

	c, err := candidate(record, dir, "standby")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Lifeline.(*lifeline.Lifeline).Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	standby, err := c.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for standby.Leader().LeaderID != "child" {
		time.Sleep(10 * time.Millisecond)
	}
	if err := first.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if standby.View().ValueInFuture() || standby.Leader().LeaderID != "child" {
		t.Fatal("a leader that is stopped was taken for dead")
	}
	killed := time.Now()
	_ = first.Process.Kill()
	l, err := standby.Lead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("led %v after the kill", time.Since(killed))
	l.Release()
	cancel()
	<-standby.Done()
	if err := c.Lifeline.(*lifeline.Lifeline).Close(); err != nil {
		t.Error(err)
	}

	second := child(t, record, dir) // the record is vacant now
	_ = second.Process.Kill()
	_ = second.Wait()
	again := child(t, record, dir)
	_ = again.Process.Kill()
	_ = again.Wait()
	if names, err := filepath.Glob(dir + "/*"); err != nil || len(names) != 1 {
		t.Errorf("%v are left, %v: want that of the last to die, which nobody has followed", names, err)
	}
}
