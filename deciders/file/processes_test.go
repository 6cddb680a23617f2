//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Three candidates in processes of their own: one is killed, one stopped past its
// term. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	proctest.Run(t, proctest.Options{Address: "file://" + filepath.Join(tempDir(t), "election.json")})
}

// roleEnv makes this test binary one of several writers; its value is the file.
const roleEnv = "FILE_TEST_COUNT"

// counts is how often each process counts up.
const counts = 50

// play counts the record of a file up, each time by winning a race.
func play(path string) int {
	d := file.NewDecider(path, nil)
	ctx := context.Background()
	for won := 0; won < counts; {
		e, err := d.ReadCurrent(ctx)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		e.ElectionNumber, e.LeaderID = 1, "counter"
		e.Extension++
		e.ConnectionParams = []byte(strings.Repeat("x", 2000)) // more than one byte at a time
		switch _, err = d.WriteEntry(ctx, e); {
		case err == nil:
			won++
		case !errors.Is(err, leaderelection.ErrLostRace):
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

func counter(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(cmd.Environ(), roleEnv+"="+path)
	return cmd
}

// Writers are killed at any moment: the file is a whole record always, it never
// goes back, and the next writer goes on.
func TestKilledWriters(t *testing.T) {
	stores.Nightly(t, "real processes and disks")
	path, d := newDecider(t)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { // every state that anybody sees is a whole one
		var last uint64
		for e, err := range d.Changes(ctx) {
			if err == nil && e.Extension < last {
				err = fmt.Errorf("went back from %d to %d", last, e.Extension)
			}
			if err != nil {
				watched <- err
				return
			}
			last = e.Extension
		}
		watched <- nil
	}()
	var last uint64
	for range 25 {
		cmd := counter(t, path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.NewTimer(rand.N(40 * time.Millisecond))
		<-after.C // that it is another moment each time is what is tested
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		e, err := d.ReadCurrent(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Extension < last {
			t.Fatalf("after a kill the count went back from %d to %d", last, e.Extension)
		}
		last = e.Extension
	}
	if err := counter(t, path).Run(); err != nil {
		t.Fatalf("after the kills: %v", err)
	}
	if e, err := d.ReadCurrent(t.Context()); err != nil || e.Extension < last+counts {
		t.Errorf("after the kills the count is %+v, %v; it was %d", e, err, last)
	}
	cancel()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}

// The directory goes away under a feed: it ends, and says why.
func TestFeedEndsWithItsDirectory(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(tempDir(t), "elections")
			d := file.NewDecider(filepath.Join(dir, "e.json"), &file.Options{CreateDir: true})
			feedtest.Write(t, d, 1, nil)
			var failure error
			for e, err := range d.Changes(t.Context()) {
				switch {
				case err != nil:
					failure = err
				case e.ElectionNumber == 1:
					if err := remove(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			if failure == nil || !strings.Contains(failure.Error(), dir) {
				t.Errorf("the feed ended with %v", failure)
			}
		})
	}
}

// A lock that somebody holds for a while costs a leader nothing; one held past its
// view costs it the leadership, view and ctx at once, and when it is free again there
// is a leader again.
func TestLockHeldUnderALeader(t *testing.T) {
	path := filepath.Join(tempDir(t), "election.json")
	newElection := func(testing.TB) func() leaderelection.RaceDecider {
		return func() leaderelection.RaceDecider { return file.NewDecider(path, nil) }
	}
	var unlock func()
	feedtest.Outage(t, newElection, feedtest.Trouble{Break: func() { unlock = hold(t, path) }, Heal: func() {
		<-time.After(time.Second)
		unlock()
	}})
}

// A standby leads within milliseconds of a release: the system tells it of the rename.
func TestHandover(t *testing.T) { feedtest.Handover(t, newElection) }
