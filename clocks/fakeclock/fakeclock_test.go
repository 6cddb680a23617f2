package fakeclock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/clocks/fakeclock"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// soon is a ctx that ends if the test hangs.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// asleep returns when n sleep by the clock.
func asleep(t *testing.T, clock *fakeclock.Clock, n int) {
	t.Helper()
	if err := clock.AwaitSleepers(soon(t), n); err != nil {
		t.Fatalf("%d sleep, want %d: %v", clock.Sleepers(), n, err)
	}
}

func TestZeroStart(t *testing.T) {
	if now := fakeclock.New(time.Time{}).Now(); now.Year() != 2000 {
		t.Errorf("it is %v", now)
	}
	if now := fakeclock.New(time.Now()).Now(); now != now.Round(0) {
		t.Errorf("%v carries a monotonic reading", now)
	}
}

// Advance moves both times, Set the wall time alone.
func TestBothTimes(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	clock := fakeclock.New(start)
	clock.Advance(time.Hour)
	clock.Advance(-time.Minute)
	if clock.Now() != start.Add(time.Hour) || clock.Monotonic() != time.Hour || clock.Until(start) != -time.Hour {
		t.Errorf("after an hour: %v, %v", clock.Now(), clock.Monotonic())
	}
	clock.Set(start)
	if clock.Now() != start || clock.Monotonic() != time.Hour {
		t.Errorf("set back: %v, %v", clock.Now(), clock.Monotonic())
	}
}

// sleepers sleeps in each way, and tells who has woken, and how.
func sleepers(ctx context.Context, clock *fakeclock.Clock, until time.Time) (timed, dated chan bool) {
	timed, dated = make(chan bool, 1), make(chan bool, 1)
	go func() { timed <- clock.SleepFor(ctx, time.Minute) }()
	go func() { dated <- clock.SleepUntil(ctx, until) }()
	return timed, dated
}

func TestSleeping(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	timed, dated := sleepers(t.Context(), clock, clock.Now().Add(time.Hour))
	asleep(t, clock, 2)
	if next, any := clock.Next(); !any || next != time.Minute {
		t.Errorf("Next is %v, %v", next, any)
	}
	clock.Advance(time.Minute - 1)
	if clock.Sleepers() != 2 {
		t.Error("somebody woke a nanosecond early")
	}
	clock.Advance(1)
	if !<-timed || clock.Sleepers() != 1 {
		t.Error("SleepFor did not sleep for a minute")
	}
	clock.Set(clock.Now().Add(time.Hour))
	if !<-dated || clock.Sleepers() != 0 {
		t.Error("SleepUntil did not notice that the clock was set")
	}
	if _, any := clock.Next(); any {
		t.Error("nobody sleeps, and Next tells when somebody wakes")
	}
	if !clock.SleepFor(t.Context(), 0) || !clock.SleepFor(t.Context(), -1) || !clock.SleepUntil(t.Context(), clock.Now()) {
		t.Error("slept for what is past")
	}
}

// A clock that is set ahead wakes nobody who sleeps for a time.
func TestSetIsNoTime(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	timed, _ := sleepers(t.Context(), clock, clock.Now().Add(48*time.Hour))
	asleep(t, clock, 2)
	clock.Set(clock.Now().Add(24 * time.Hour))
	if clock.Sleepers() != 2 {
		t.Error("somebody woke")
	}
	clock.Advance(time.Minute)
	<-timed
	clock.Advance(24 * time.Hour)
}

func TestSleepEndsWithItsContext(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	ctx, cancel := context.WithCancelCause(t.Context())
	timed, dated := sleepers(ctx, clock, clock.Now().Add(time.Hour))
	asleep(t, clock, 2)
	left := errors.New("left")
	cancel(left)
	if <-timed || <-dated || clock.Sleepers() != 0 {
		t.Error("they were not told, or still sleep")
	}
	if clock.SleepFor(ctx, time.Hour) || clock.SleepFor(ctx, 0) || clock.SleepUntil(ctx, clock.Now()) {
		t.Error("slept under a ctx that has ended")
	}
	if err := clock.AwaitSleepers(ctx, 1); err != left {
		t.Errorf("AwaitSleepers: %v", err)
	}
}

// It can be wrapped, so that two candidates' clocks are apart.
func TestOffsetOfAFakeClock(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	ahead := clocks.NewOffset(clock, time.Hour)
	clock.Advance(time.Minute)
	if ahead.Now().Sub(clock.Now()) != time.Hour || ahead.Monotonic() != time.Minute {
		t.Errorf("%v, %v", ahead.Now(), ahead.Monotonic())
	}
}

// A whole fail-over without a bubble: the leader is cut off, and the other leads when
// the term is over by the clock, not before; the store is on the same clock, so that
// nobody's clock is proved wrong.
func TestFailOver(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	election := memory.New(&memory.Options{Clock: clock})
	elected := make(chan string, 1)
	ctx, cancel := context.WithCancel(t.Context())
	start := func(id string) (*memory.Decider, *leaderelection.Campaign) {
		store := election.Handle()
		c, err := leaderelection.Config{
			Decider: store, LeaderID: id, Clock: clock, TermLength: 15 * time.Second, MaxClockSkew: time.Second,
			OnElected: func(context.Context, *leaderelection.TimeView) { elected <- id },
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return store, c
	}
	soon := soon(t)
	storeOfA, a := start("a")
	if id := <-elected; id != "a" {
		t.Fatalf("%s leads first", id)
	}
	led := a.View().ElectionNumber()
	_, b := start("b")
	for range 60 { // five minutes, in which a extends its lease
		asleep(t, clock, 2) // else one may work out by the old time for how long to sleep
		clock.Advance(5 * time.Second)
		for election.Entry().TermExpiry.Sub(clock.Now()) < 8*time.Second || a.View().Get().Sub(clock.Now()) < 7*time.Second {
			if soon.Err() != nil {
				t.Fatalf("a does not extend its lease: %+v at %v", election.Entry(), clock.Now())
			}
			time.Sleep(time.Millisecond)
		}
	}
	if !a.View().ValueInFuture() || a.View().ElectionNumber() != led {
		t.Fatal("a has lost its lead")
	}
	storeOfA.Inject(memory.LoseRequests())
	view := a.View()
	cut := clock.Now()
	for {
		select {
		case id := <-elected:
			if took := clock.Now().Sub(cut); id != "b" || view.ValueInFuture() || took > 18*time.Second {
				t.Errorf("%s leads after %v, and a's view is in the future: %v", id, took, view.ValueInFuture())
			}
			cancel()
			for _, c := range []*leaderelection.Campaign{a, b} {
				for stopped := false; !stopped; clock.Advance(time.Second) {
					select {
					case <-c.Done():
						stopped = true
					case <-time.After(time.Millisecond): // what it waits for on its way out
					}
				}
			}
			return
		case <-soon.Done():
			t.Fatal("nobody leads")
		case <-time.After(time.Millisecond): // for what the last step has woken
			clock.Advance(100 * time.Millisecond)
		}
	}
}

// A leader keeps its lease while time passes in steps, with AwaitSleepers in between: it
// waits for what a step has woken, the store's answers included.
func TestStepsKeepTheLease(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Second, time.Second} {
		clock := fakeclock.New(time.Time{})
		elected := make(chan *leaderelection.TimeView, 10)
		campaign, err := leaderelection.Config{
			Decider: memory.New(&memory.Options{Clock: clock}), LeaderID: "a", Clock: clock,
			OnElected: func(_ context.Context, view *leaderelection.TimeView) { elected <- view },
		}.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		view := <-elected
		for passed := time.Duration(0); passed < time.Minute; passed += step {
			if err := clock.AwaitSleepers(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			clock.Advance(step)
		}
		if !view.ValueInFuture() || len(elected) > 0 {
			t.Errorf("steps of %v: the lease was lost, %d times", step, len(elected))
		}
		_ = campaign
	}
}

// working is a store whose writes keep a processor busy for a while, as one does whose goroutine waits
// for a processor on a machine with other load.
type working struct{ leaderelection.RaceDecider }

func (w working) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	for begun := time.Now(); time.Since(begun) < 30*time.Millisecond; {
	}
	return w.RaceDecider.WriteEntry(ctx, e)
}

// AwaitSleepers waits for goroutines that are at work.
func TestAwaitSleepersWaitsForWork(t *testing.T) {
	told := []metrics.Sample{{Name: "/sched/goroutines/running:goroutines"}}
	if metrics.Read(told); told[0].Value.Kind() == metrics.KindBad {
		t.Skip("the runtime does not tell which goroutines run")
	}
	clock := fakeclock.New(time.Time{})
	c, err := leaderelection.Config{
		Decider: working{memory.New(&memory.Options{Clock: clock}).Polled()}, LeaderID: "a", Clock: clock,
	}.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Lead(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if err := clock.AwaitSleepers(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		clock.Advance(5 * time.Second)
	}
	if !l.View().ValueInFuture() {
		t.Error("the lease was lost")
	}
}

// A campaign that stops while its store is away needs time to give up its release.
func TestAdvanceUntilACampaignHasStopped(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	d := memory.New(&memory.Options{Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := leaderelection.Config{Decider: d, LeaderID: "a", Clock: clock}.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Lead(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	d.Inject(memory.LoseRequests())
	cancel()
	began := clock.Now()
	if err := clock.AdvanceUntil(soon(t), c.Done()); err != nil {
		t.Fatal(err)
	}
	if took := clock.Now().Sub(began); took <= 0 || took > leaderelection.DefaultTermLength {
		t.Errorf("it took %v", took)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := clock.AdvanceUntil(ended, make(chan struct{})); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A leader's process is stopped for a minute. What may it do when it goes on?
func Example() {
	clock := fakeclock.New(time.Time{})
	election := memory.New(&memory.Options{Clock: clock}) // it stamps by the same clock
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	views := make(chan *leaderelection.TimeView)
	campaign, err := leaderelection.Config{
		Decider:  election,
		LeaderID: "a",
		Clock:    clock,
		OnElected: func(_ context.Context, view *leaderelection.TimeView) {
			views <- view
		},
	}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	view := <-views
	fmt.Println("leads until", view.Get().Format(time.TimeOnly), "and may act:", view.ValueInFuture())

	_ = clock.AwaitSleepers(ctx, 1) // until it rests: what falls asleep after Advance sleeps on
	clock.Advance(time.Minute)
	fmt.Println("a minute later may act:", view.ValueInFuture())

	again := make(chan struct{})
	go func() {
		defer close(again)
		view = <-views
	}()
	_ = clock.AdvanceUntil(ctx, again) // it has won again
	fmt.Println("with token", view.ElectionNumber(), "may act:", view.ValueInFuture())

	cancel()
	_ = campaign.Wait()
	// Output:
	// leads until 00:00:14 and may act: true
	// a minute later may act: false
	// with token 946684801 may act: true
}
