//go:build go1.25

package memory_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks/fakeclock"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// What a fault does to a write: its error, how long the call takes, and when the write lands.
func TestFaults(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		faults       memory.Faults
		timeout      time.Duration // of the caller's ctx; 0: none
		err          error
		after, lands time.Duration
	}{
		"none":                     {nil, 0, nil, 0, 0},
		"a lost request":           {memory.LoseRequests(), 0, memory.ErrLost, 0, never},
		"a lost answer":            {memory.LoseAnswers(), 0, memory.ErrLost, 0, 0},
		"retried by the client":    {memory.Always(memory.Fault{Err: leaderelection.ErrLostRace, Lands: true}), 0, leaderelection.ErrLostRace, 0, 0},
		"slow":                     {memory.Slow(3 * time.Second), 0, nil, 3 * time.Second, 1500 * time.Millisecond},
		"given up on the way":      {memory.Slow(3 * time.Second), time.Second, context.DeadlineExceeded, time.Second, never},
		"given up on the way back": {memory.Slow(3 * time.Second), 2 * time.Second, context.DeadlineExceeded, 2 * time.Second, 1500 * time.Millisecond},
		"a delayed packet":         {memory.Always(memory.Fault{Err: memory.ErrLost, Late: time.Minute}), 0, memory.ErrLost, 0, time.Minute},
		"of reads alone":           {memory.LoseRequests().On(memory.Read, memory.Feed), 0, nil, 0, 0},
		"undone":                   {memory.Undo(time.Minute), 0, memory.ErrLost, time.Minute, never},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := memory.NewDecider()
			d.Inject(c.faults)
			ctx := t.Context()
			if c.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.timeout)
				defer cancel()
			}
			e, begin := entry("a", 1, 0), time.Now()
			_, err := d.WriteEntry(ctx, &e)
			if took := time.Since(begin); !errors.Is(err, c.err) || took != c.after {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			e.LeaderID = "changed by its owner"
			time.Sleep(time.Hour)
			landed := time.Duration(never)
			if now := d.Entry(); now.LeaderID == "a" {
				landed = now.Token.CommitTS().Sub(begin)
			}
			if landed != c.lands {
				t.Errorf("%s: it has landed after %v, want %v", name, landed, c.lands)
			}
		})
	}
}

// Others are not touched, and what is late is still conditional.
func TestLateWriteIsStillConditional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		d.Inject(memory.Always(memory.Fault{Err: memory.ErrLost, Late: time.Minute}))
		e := entry("late", 1, 0)
		if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, memory.ErrLost) {
			t.Errorf("WriteEntry = %v", err)
		}
		write(t, d.Handle(), nil, entry("first", 1, 0))
		time.Sleep(time.Hour)
		if e := d.Entry(); e.LeaderID != "first" {
			t.Errorf("at last: %+v", e)
		}
	})
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

// pushes takes what a feed delivers, in a bubble.
func pushes(t *testing.T, d *memory.Decider) (seen *[]leaderelection.RaceEntry, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	seen = &[]leaderelection.RaceEntry{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range d.Changes(ctx) {
			*seen = append(*seen, *e)
		}
	}()
	synctest.Wait()
	return seen, func() { cancel(); <-ended }
}

// A feed that tells of a write a minute before it happens, or is undone.
func TestFeedTellsOfWhatIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		first := write(t, d, nil, entry("a", 1, 0))
		seen, stop := pushes(t, d.Handle())
		defer stop()

		d.Inject(memory.Undo(time.Minute))
		e := entry("b", 2, 0)
		e.Token = first
		begin := time.Now()
		if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, memory.ErrLost) || time.Since(begin) != time.Minute {
			t.Errorf("WriteEntry = %v after %v", err, time.Since(begin))
		}
		synctest.Wait()
		if len(*seen) != 3 || (*seen)[1].LeaderID != "b" || (*seen)[2].LeaderID != "a" {
			t.Fatalf("the feed told of %+v, want a, b, a", *seen)
		}
		if now := d.Entry(); now.LeaderID != "a" {
			t.Errorf("it was not undone: %+v", now)
		}
		e.Token = (*seen)[1].Token
		if _, err := d.Handle().WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("a write with the token of what was undone: %v", err)
		}

		d.Inject(memory.Always(memory.Fault{Foretold: time.Minute}).On(memory.Write))
		go func() { write(t, d, first, entry("c", 2, 0)) }()
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		if n := len(*seen); n != 4 || (*seen)[3].LeaderID != "c" || d.Entry().LeaderID != "a" {
			t.Fatalf("a second before it happens: %+v, stored %+v", (*seen)[n-1], d.Entry())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(*seen); n != 4 || d.Entry().LeaderID != "c" {
			t.Errorf("it has happened: told %d times, stored %+v", n, d.Entry())
		}
		write(t, d.Handle(), (*seen)[3].Token, entry("c", 2, 1)) // what was told of is the version now
	})
}

// A stale write, or one of a caller that gives up, tells of nothing, or of nothing any more.
func TestForetellingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		first := write(t, d, nil, entry("a", 1, 0))
		second := write(t, d, first, entry("a", 1, 1))
		seen, stop := pushes(t, d.Handle())
		defer stop()
		d.Inject(memory.Always(memory.Fault{Foretold: time.Minute}).On(memory.Write))
		e := entry("b", 2, 0)
		e.Token = first
		if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("a stale write: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e.Token = second
		if _, err := d.WriteEntry(ctx, &e); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write that was given up: %v", err)
		}
		synctest.Wait()
		if n := len(*seen); n != 3 || (*seen)[1].LeaderID != "b" || (*seen)[2].LeaderID != "a" {
			t.Errorf("the feed told of %+v, want a, b, a", *seen)
		}
	})
}

// Tell makes feeds tell of what is not stored, until the next write.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.NewDecider()
		token := write(t, d, nil, entry("a", 1, 0))
		seen, stop := pushes(t, d)
		defer stop()
		vacant := d.Entry()
		vacant.LeaderID, vacant.Extension = "", 1
		d.Tell(vacant)
		synctest.Wait()
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.Vacant() {
			t.Errorf("it is read: %+v, %v", e, err)
		}
		d.Tell(nil)
		synctest.Wait()
		d.Tell(vacant)
		synctest.Wait()
		write(t, d, token, entry("a", 1, 1))
		synctest.Wait()
		var told []string
		for _, e := range *seen {
			told = append(told, e.LeaderID)
		}
		if want := []string{"a", "", "a", "", "a"}; !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	})
}

// The store's clock stamps, and lets delays pass.
func TestClockOfTheStore(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	d := memory.New(&memory.Options{Clock: clock})
	if at := write(t, d, nil, entry("a", 1, 0)).CommitTS(); !at.Equal(clock.Now()) {
		t.Errorf("stamped %v, want %v", at, clock.Now())
	}
	d.Inject(memory.Slow(time.Hour).On(memory.Read))
	answered := make(chan error, 1)
	go func() {
		_, err := d.ReadCurrent(t.Context())
		answered <- err
	}()
	for range 2 { // on its way there, and back
		if err := clock.AwaitSleepers(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-answered:
			t.Fatal("it did not wait")
		default:
		}
		clock.Advance(30 * time.Minute)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	late := d.Entry()
	late.Extension++
	d.Inject(memory.Always(memory.Fault{Err: memory.ErrLost, Late: time.Hour}).On(memory.Write))
	if _, err := d.WriteEntry(t.Context(), late); !errors.Is(err, memory.ErrLost) {
		t.Error(err)
	}
	if err := clock.AwaitSleepers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	feed, stop := iter.Pull2(d.Handle().Changes(t.Context()))
	defer stop()
	feed()
	clock.Advance(time.Hour)
	if e, err, ok := feed(); !ok || err != nil || e.Extension != 1 {
		t.Errorf("the late write: %+v, %v", e, err)
	}
}
