//go:build go1.25

package hinted_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		poll  time.Duration
		hints func(s *hinted.Signal) hinted.Hints
	}{
		"hints":           {time.Hour, func(s *hinted.Signal) hinted.Hints { return s.Hints }},
		"every hint lost": {10 * time.Millisecond, func(*hinted.Signal) hinted.Hints { return silent }},
	} {
		t.Run(name, func(t *testing.T) {
			decidertest.Run(t, func(testing.TB) func() leaderelection.RaceDecider {
				var signal hinted.Signal
				election := memory.NewDecider()
				return func() leaderelection.RaceDecider {
					return hinted.NewDecider(election.Handle().Polled(), c.hints(&signal), &hinted.Options{
						PollInterval: c.poll, MinInterval: time.Millisecond,
						Announce: func(context.Context) { signal.Changed() },
					})
				}
			}, nil)
		})
	}
}

func TestNewWithoutDeciderOrHints(t *testing.T) {
	for word, d := range map[string]*hinted.Decider{
		"decider": hinted.NewDecider(nil, silent, nil),
		"hints":   hinted.NewDecider(memory.NewDecider(), nil, nil),
	} {
		_, read := d.ReadCurrent(t.Context())
		_, write := d.WriteEntry(t.Context(), entry(1, 0))
		feed := <-follow(t.Context(), d)
		for _, err := range []error{read, write, feed.err} {
			feedtest.Permanent(t, err, word)
		}
		err := leaderelection.Config{Decider: d, LeaderID: "a", OnElected: func(context.Context, *leaderelection.TimeView) {}}.Acquire(t.Context())
		feedtest.Permanent(t, err)
	}
}

// What may have happened is announced, and what has not is not.
func TestAnnounce(t *testing.T) {
	announced := 0
	m := memory.NewDecider()
	d := hinted.NewDecider(m, silent, &hinted.Options{Announce: func(context.Context) { announced++ }})
	e := entry(1, 0)
	for _, c := range []struct {
		what   string
		fault  memory.Faults
		more   int
		change func()
	}{
		{"a write", nil, 1, func() {}},
		{"a lost race", nil, 0, func() { e.Token = nil }},
		{"a refusal for good", memory.Fail(leaderelection.ErrPermanent), 0, func() {}},
		{"a lost answer", memory.LoseAnswers(), 1, func() { e.Token = m.Entry().Token }},
		{"a lost request", memory.LoseRequests(), 1, func() { e.Token = m.Entry().Token }},
	} {
		c.change()
		m.Inject(c.fault)
		before := announced
		if _, err := d.WriteEntry(t.Context(), e); (err == nil) != (c.what == "a write") {
			t.Fatalf("%s: %v", c.what, err)
		}
		if announced-before != c.more {
			t.Errorf("%s is announced %d times, want %d", c.what, announced-before, c.more)
		}
	}
}

// A publisher that is stuck holds up one write for a moment, and no other; when it is
// free again, all that has been written is one more announcement.
func TestAnnounceIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		announced := 0
		stuck := make(chan struct{})
		d := hinted.NewDecider(memory.NewDecider(), silent, &hinted.Options{Announce: func(ctx context.Context) {
			announced++
			<-stuck
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Second {
				t.Errorf("its ctx ends at %v", deadline)
			}
		}})
		e := entry(1, 0)
		for i := range 100 {
			begin := time.Now()
			token, err := d.WriteEntry(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			e.Token = token
			e.Extension++
			if took := time.Since(begin); took > 100*time.Millisecond || i > 0 && took != 0 {
				t.Errorf("write %d took %v", i, took)
			}
		}
		close(stuck)
		synctest.Wait()
		if announced != 2 {
			t.Errorf("%d announcements, want 2", announced)
		}
	})
}

// Each feed hears of each change; one that has ended hears of none.
func TestSignalTellsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var signal hinted.Signal
		signal.Changed() // nobody listens
		heard := make([]int, 3)
		var stop [3]context.CancelFunc
		for i := range heard {
			ctx, cancel := context.WithCancel(t.Context())
			stop[i] = cancel
			go func() {
				if err := signal.Hints(ctx, func() { heard[i]++ }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		signal.Changed()
		stop[1]()
		synctest.Wait()
		signal.Changed()
		for i, want := range []int{3, 2, 3} { // one when it begins to listen
			if heard[i] != want {
				t.Errorf("listener %d heard %d hints, want %d", i, heard[i], want)
			}
		}
		stop[0]()
		stop[2]()
	})
}

// A bare number counts nanoseconds: nobody means so few.
func TestBareNumbers(t *testing.T) {
	for _, o := range []hinted.Options{{PollInterval: 10}, {MinInterval: 10}} {
		feedtest.Refuses(t, hinted.NewDecider(memory.NewDecider(), func(context.Context, func()) error { return nil }, &o), "nanoseconds")
	}
}

// Close closes the decider that Open has returned, too.
func TestClose(t *testing.T) {
	closed := 0
	d := hinted.NewDecider(&closing{memory.NewDecider(), &closed}, func(context.Context, func()) error { return nil }, nil)
	if err := open.Close(d); err != nil || closed != 1 {
		t.Errorf("%v, closed %d times", err, closed)
	}
	if err := hinted.NewDecider(memory.NewDecider(), nil, nil).Close(); err != nil {
		t.Error(err)
	}
}

type closing struct {
	leaderelection.RaceDecider
	times *int
}

func (c *closing) Close() error { *c.times++; return nil }
