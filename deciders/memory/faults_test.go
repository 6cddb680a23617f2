package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

func TestLostAnswerLands(t *testing.T) {
	d := memory.NewDecider()
	d.Inject(memory.LoseAnswers().On(memory.Write).Times(1))
	if _, err := d.ReadCurrent(t.Context()); err != nil {
		t.Fatalf("reads are to work: %v", err)
	}
	e := entry("a", 1, 0)
	if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, memory.ErrLost) || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v", err)
	}
	now := d.Entry()
	if now.LeaderID != "a" {
		t.Errorf("the write did not land: %+v", now)
	}
	write(t, d, now.Token, entry("a", 1, 1)) // the fault was for one write
}

func TestLostRequestDoesNotLand(t *testing.T) {
	d := memory.NewDecider()
	other := d.Handle()
	d.Inject(memory.LoseRequests())
	e := entry("a", 1, 0)
	if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, memory.ErrLost) {
		t.Errorf("WriteEntry = %v", err)
	}
	if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, memory.ErrLost) {
		t.Errorf("ReadCurrent = %v", err)
	}
	for e, err := range d.Changes(t.Context()) {
		if e != nil || !errors.Is(err, memory.ErrLost) {
			t.Errorf("feed: %+v, %v", e, err)
		}
	}
	write(t, other, nil, entry("b", 1, 0)) // nothing landed, and others are not touched
}

func TestRetriedWithinTheClient(t *testing.T) {
	d := memory.NewDecider()
	d.Inject(memory.Always(memory.Fault{Err: leaderelection.ErrLostRace, Lands: true}).Times(1))
	e := entry("a", 1, 0)
	if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry = %v", err)
	}
	if d.Entry().LeaderID != "a" {
		t.Error("the write did not land")
	}
}

func TestTimesCountsOnlyFaults(t *testing.T) {
	d := memory.NewDecider()
	failing := errors.New("failing")
	d.Inject(memory.Fail(failing).On(memory.Write).Times(2))
	for range 5 {
		if _, err := d.ReadCurrent(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	e := entry("a", 1, 0)
	for i, want := range []error{failing, failing, nil} {
		if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, want) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(memory.Slow(3 * time.Second))
		begin := time.Now()
		token := write(t, d, nil, entry("a", 1, 0))
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		if at := token.CommitTS().Sub(begin); at != 1500*time.Millisecond {
			t.Errorf("written after %v", at)
		}

		// Given up on the way there, a write does not land; on the way back it does.
		for _, c := range []struct {
			timeout time.Duration
			lands   bool
		}{{time.Second, false}, {2 * time.Second, true}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			begin := time.Now()
			e := entry("late", 2, 0)
			e.Token = token
			_, err := d.WriteEntry(ctx, &e)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != c.timeout {
				t.Errorf("timeout %v: %v after %v", c.timeout, err, time.Since(begin))
			}
			if lands := d.Entry().LeaderID == "late"; lands != c.lands {
				t.Errorf("timeout %v: landed: %v, want %v", c.timeout, lands, c.lands)
			}
		}
	})
}

func TestLateWriteIsStillConditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(memory.Always(memory.Fault{Err: memory.ErrLost, Late: time.Minute}).On(memory.Write).Times(2))
		for _, e := range []leaderelection.RaceEntry{entry("first", 1, 0), entry("second", 1, 0)} {
			if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, memory.ErrLost) {
				t.Errorf("WriteEntry = %v", err)
			}
			e.LeaderID = "changed by its owner"
			time.Sleep(time.Second)
		}
		time.Sleep(58*time.Second - 1)
		if e := d.Entry(); !e.Vacant() {
			t.Errorf("too early: %+v", e)
		}
		time.Sleep(time.Minute)
		if e := d.Entry(); e.LeaderID != "first" {
			t.Errorf("at last: %+v", e)
		}
	})
}

func TestHangHeedsNoContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		d.Inject(memory.Hang(release).On(memory.Write))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		returned := make(chan error, 1)
		go func() {
			e := entry("a", 1, 0)
			_, err := d.WriteEntry(ctx, &e)
			returned <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-returned:
			t.Fatalf("returned %v", err)
		default:
		}
		if !d.Entry().Vacant() {
			t.Error("it has landed already")
		}
		close(release)
		if err := <-returned; err != nil || d.Entry().LeaderID != "a" {
			t.Errorf("released: %v, %+v", err, d.Entry())
		}
	})
}

func TestSilentFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		release := make(chan struct{})
		d.Inject(func(op memory.Op) memory.Fault {
			if op.Kind == memory.Feed && op.Entry.LeaderID == "a" {
				return memory.Fault{Hang: release}
			}
			return memory.Fault{}
		})
		news := make(chan string, 3)
		go func() {
			for e := range d.Changes(t.Context()) {
				news <- e.LeaderID
			}
		}()
		if first := <-news; first != "" {
			t.Errorf("first: %q", first)
		}
		token := write(t, d, nil, entry("a", 1, 0))
		time.Sleep(time.Hour)
		write(t, d, token, entry("b", 2, 0))
		time.Sleep(time.Hour)
		if len(news) > 0 {
			t.Errorf("the feed is to be silent: %q", <-news)
		}
		close(release)
		if one, two := <-news, <-news; one != "a" || two != "b" {
			t.Errorf("then: %q, %q", one, two)
		}
	})
}
