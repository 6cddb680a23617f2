//go:build (linux || darwin) && go1.25

package file_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// elected is a leadership as its leader sees it.
type elected struct {
	ctx  context.Context
	view *leaderelection.TimeView
}

// campaign starts a candidate, which ends with the test.
func campaign(t testing.TB, path, id string, term time.Duration, leaderships chan<- elected) {
	t.Helper()
	c, err := leaderelection.Config{
		Decider: file.NewDecider(path, nil), LeaderID: id, TermLength: term, ClockPolicy: leaderelection.SharedClock,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			leaderships <- elected{ctx, view}
			<-ctx.Done()
		},
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { <-c.Done() })
}

func next(t testing.TB, leaderships <-chan elected) elected {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	select {
	case e := <-leaderships:
		return e
	case <-timeout.C:
		t.Fatal("nobody was elected")
	}
	return elected{}
}

// A lock that somebody holds for a while costs a leader nothing; one held past its
// view costs it the leadership, view and ctx at once, and when it is free again there
// is a leader again.
func TestLockHeldUnderALeader(t *testing.T) {
	const term = time.Second
	path := filepath.Join(tempDir(t), "election.json")
	leaderships := make(chan elected, 100)
	campaign(t, path, "a", term, leaderships)
	campaign(t, path, "b", term, leaderships)
	first := next(t, leaderships)

	unlock := hold(t, path)
	short := time.NewTimer(term / 4)
	<-short.C
	unlock()
	extendedPast(t, first, time.Now().Add(term))

	unlock = hold(t, path)
	held := time.Now()
	<-first.ctx.Done()
	if cause := context.Cause(first.ctx); !errors.Is(cause, leaderelection.ErrExpired) || first.view.ValueInFuture() {
		t.Errorf("with the lock held, a leadership ended with %v", cause)
	}
	if late := time.Since(first.view.Get()); late > 200*time.Millisecond || late < 0 {
		t.Errorf("its ctx ended %v after its view", late)
	}
	if lasted := time.Since(held); lasted > term+200*time.Millisecond {
		t.Errorf("it led %v on while it could not write", lasted)
	}
	unlock()
	second := next(t, leaderships)
	if second.view.ElectionNumber() <= first.view.ElectionNumber() {
		t.Errorf("leadership %d after %d", second.view.ElectionNumber(), first.view.ElectionNumber())
	}
}

// extendedPast waits until a view lasts longer than to the moment end.
func extendedPast(t testing.TB, e elected, end time.Time) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); e.view.Get().Before(end); <-tick.C {
		if e.ctx.Err() != nil {
			t.Fatalf("the leadership ended: %v", context.Cause(e.ctx))
		}
	}
}

// A standby leads within milliseconds of a release: the system tells it of the rename.
func TestHandover(t *testing.T) { feedtest.Handover(t, newElection) }
