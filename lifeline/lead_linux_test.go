//go:build go1.25

package lifeline

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
)

// A leader is a role of a process. The name that it is given is its record's.
func init() { provers["leader"] = leads }

// candidate is one whose term nobody waits for in a test.
func candidate(line *Lifeline, record, id string) le.Config {
	return le.Config{Decider: file.NewDecider(record, nil), LeaderID: id, TermLength: 10 * time.Minute, ClockPolicy: le.SharedClock, Lifeline: line}
}

func leads(line *Lifeline, record string) error {
	c := candidate(line, record, "child")
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
	fmt.Println("alive")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
	return nil
}

// A leader's process is killed, with a term of ten minutes: the standby on its machine leads, and so
// does a process that is started after it. One that is stopped is waited for.
func TestStandbyLeadsWhenTheProcessDies(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	l, record := newLine(t), filepath.Join(t.TempDir(), "record")
	first := begin(t, "leader", l.path, record).start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	standby := must(candidate(l, record, "standby").Start(ctx))(t)
	for standby.Leader().LeaderID != "child" {
		time.Sleep(10 * time.Millisecond)
	}
	works(t, first.Process.Signal(syscall.SIGSTOP))
	time.Sleep(2 * time.Second)
	if standby.View().ValueInFuture() || standby.Leader().LeaderID != "child" {
		t.Fatal("a leader that is stopped was taken for dead")
	}
	killed := time.Now()
	_ = first.Process.Kill()
	lead := must(standby.Lead(ctx))(t)
	t.Logf("led %v after the kill", time.Since(killed))
	lead.Release()
	cancel()
	<-standby.Done()
	works(t, l.Close())
	for range 2 { // the record is vacant now, and then a dead one's
		next := begin(t, "leader", l.path, record).start(t)
		_ = next.Process.Kill()
		_ = next.Wait()
	}
	if names, err := filepath.Glob(l.path + "/*"); err != nil || len(names) != 1 {
		t.Errorf("%v are left, %v: want that of the last to die, which nobody has followed", names, err)
	}
}
