package feedtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

// Trouble is something that befalls a store, or the way to it.
type Trouble struct {
	Break, Heal func()
	// Pause is for how long the store's client may wait after that before it connects again.
	Pause time.Duration
}

// News fails t where an observer learns of a change later than its poll interval
// after there was a way to learn of it: the change is written while there is
// trouble, or as soon as it is over where nobody can write before. Victim is the
// observer's handle, writer another one.
func News(t *testing.T, writer, victim leaderelection.RaceDecider, trouble Trouble) {
	t.Helper()
	stores.Nightly(t, "it breaks the store and waits")
	const (
		poll  = 500 * time.Millisecond
		slack = 1500 * time.Millisecond // for a busy machine
	)
	ctx, cancel := context.WithCancel(t.Context())
	heard := make(chan leaderelection.ElectionNumber, 100)
	ended := make(chan struct{})
	var log diary
	go func() {
		defer close(ended)
		_ = leaderelection.WatchConfig{Decider: victim, PollInterval: poll, Trace: log.trace()}.
			Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) { heard <- e.ElectionNumber })
	}()
	defer func() { <-ended }()
	defer cancel()

	number := uint64(1)
	put(t, writer, number)
	hear := func(number uint64) {
		for await(t, "the news of a write", heard) < leaderelection.ElectionNumber(number) {
		}
	}
	hear(number)
	for range 3 {
		number++
		log.begin()
		trouble.Break()
		written := make(chan time.Time, 1)
		go func() {
			put(t, writer, number)
			written <- time.Now()
		}()
		// Long enough for the feed to notice, where it notices at all.
		wait(2 * time.Second)
		trouble.Heal()
		since := time.Now()
		log.note("healed")
		if at := await(t, "the write", written); at.After(since) {
			since = at
		}
		log.note("the write is known to be done")
		hear(number)
		late := time.Since(since)
		t.Logf("the news came %v after there was a way to learn of it", max(0, late).Round(time.Millisecond))
		if late > poll+trouble.Pause+slack {
			t.Errorf("the news came %v late; the poll interval is %v, and the client pauses for %v; what the observer did:%s", late, poll, trouble.Pause, log.text())
		}
		// And then by the feed again.
		number++
		put(t, writer, number)
		hear(number)
	}
}

// put writes record number, for as long as it takes.
func put(t *testing.T, d leaderelection.RaceDecider, number uint64) {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		e, err := d.ReadCurrent(ctx)
		if err == nil && uint64(e.ElectionNumber) < number {
			next := record(number)
			next.Token = e.Token
			_, err = d.WriteEntry(ctx, next)
		}
		cancel()
		if err == nil {
			return
		}
		wait(20 * time.Millisecond)
	}
}

// wait waits, where there is nothing to wait for but time itself.
func wait(d time.Duration) { <-time.After(d) }

// Outage fails t where a leadership does not survive an outage shorter than half its view,
// or outlives its view in a longer one, or where nobody leads soon after that.
func Outage(t *testing.T, newElection NewElection, trouble Trouble) {
	t.Helper()
	stores.Nightly(t, "it breaks the store and waits")
	const (
		term = 8 * time.Second // a busy machine takes two seconds to start a server again
		skew = 100 * time.Millisecond
		half = (term - skew) / 2 // of a view: from one extension to the next
	)
	handle := newElection(t)
	elected := make(chan leadership, 3)
	for _, id := range []string{"a", "b", "c"} {
		start(t, leaderelection.Config{Decider: handle(), LeaderID: id, TermLength: term, MaxClockSkew: skew}, elected)
	}
	r := await(t, "a leader", elected)
	extended := func() time.Time {
		end := r.view.Get()
		until(t, "an extension", 2*term, func() bool { return r.view.Get().After(end) })
		return r.view.Get()
	}
	for short, try := false, 1; !short; try++ {
		extended()
		broken := time.Now()
		trouble.Break()
		trouble.Heal()
		if took := time.Since(broken); took < half*3/4 {
			short = true
			extended()
			if !r.view.ValueInFuture() || r.ctx.Err() != nil {
				t.Errorf("the leadership did not survive an outage of %v: %v", took, context.Cause(r.ctx))
			}
			t.Logf("the leadership survived an outage of %v", took.Round(time.Millisecond))
		} else if try == 5 {
			t.Fatalf("the store takes %v to be back: no outage is short", took)
		} else if r.ctx.Err() != nil {
			r = await(t, "another leader", elected)
		}
	}

	end := extended()
	trouble.Break()
	<-r.ctx.Done()
	now := time.Now()
	if cause := context.Cause(r.ctx); !errors.Is(cause, leaderelection.ErrExpired) {
		t.Errorf("with the store gone the leadership ends with %v, want ErrExpired", cause)
	}
	if early := end.Sub(now); early > 50*time.Millisecond {
		// The very last extension may have been confirmed in between.
		t.Errorf("with the store gone the leadership ended %v before its view", early)
	}
	if r.view.ValueInFuture() {
		t.Errorf("ctx has ended, and the view goes on")
	}
	wait(skew)
	trouble.Heal()
	healed := time.Now()
	next := await(t, "a leader after the outage", elected)
	took := next.at.Sub(healed)
	t.Logf("a leader %v after the outage", took.Round(time.Millisecond))
	if bound := term + 2*skew + time.Second; took > bound {
		t.Errorf("a leader %v after the outage; want one within %v", took, bound)
	}
	if next.view.ElectionNumber() <= r.view.ElectionNumber() {
		t.Errorf("leadership %d came after leadership %d", next.view.ElectionNumber(), r.view.ElectionNumber())
	}
}

// Campaign campaigns until the end of the test, and sends on the channel for each leadership.
func Campaign(t testing.TB, d leaderelection.RaceDecider, id string, term, skew time.Duration) (*leaderelection.Campaign, <-chan struct{}) {
	t.Helper()
	elected := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := leaderelection.Config{
		Decider: d, LeaderID: id, TermLength: term, MaxClockSkew: skew, PollInterval: 100 * time.Millisecond,
		OnElected: func(context.Context, *leaderelection.TimeView) { elected <- struct{}{} },
	}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = c.Wait() })
	return c, elected
}
