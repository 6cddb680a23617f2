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
		t.Fatalf("%d do not sleep: %v", n, err)
	}
}

// Advance moves both times, Set the wall time alone. It can be wrapped, so that two candidates' clocks are
// apart.
func TestBothTimes(t *testing.T) {
	if now := fakeclock.New(time.Time{}).Now(); now.Year() != 2000 {
		t.Errorf("it is %v", now)
	}
	if now := fakeclock.New(time.Now()).Now(); now != now.Round(0) {
		t.Errorf("%v carries a monotonic reading", now)
	}
	start := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	clock := fakeclock.New(start)
	ahead := clocks.NewOffset(clock, time.Minute)
	clock.Advance(time.Hour)
	clock.Advance(-time.Minute)
	if clock.Now() != start.Add(time.Hour) || clock.Monotonic() != time.Hour || clock.Until(start) != -time.Hour {
		t.Errorf("after an hour: %v, %v", clock.Now(), clock.Monotonic())
	}
	clock.Set(start)
	if clock.Now() != start || clock.Monotonic() != time.Hour {
		t.Errorf("set back: %v, %v", clock.Now(), clock.Monotonic())
	}
	if ahead.Now().Sub(clock.Now()) != time.Minute || ahead.Monotonic() != time.Hour {
		t.Errorf("ahead of it: %v, %v", ahead.Now(), ahead.Monotonic())
	}
}

// sleepers sleeps in each way, and tells who has woken, and how.
func sleepers(ctx context.Context, clock *fakeclock.Clock, until time.Time) (timed, dated chan bool) {
	timed, dated = make(chan bool, 1), make(chan bool, 1)
	go func() { timed <- clock.SleepFor(ctx, time.Minute) }()
	go func() { dated <- clock.SleepUntil(ctx, until) }()
	return timed, dated
}

// woken returns whether a sleep has ended well, or false if it has not ended.
func woken(c chan bool) bool {
	select {
	case well := <-c:
		return well
	case <-time.After(10 * time.Millisecond):
		return false
	}
}

// Who sleeps for a time wakes when it has passed, and not because a clock was set ahead. Who sleeps until
// a wall time wakes by both.
func TestSleeping(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	timed, dated := sleepers(t.Context(), clock, clock.Now().Add(48*time.Hour))
	asleep(t, clock, 2)
	clock.Set(clock.Now().Add(24 * time.Hour))
	clock.Advance(time.Minute - 1)
	if woken(timed) {
		t.Error("somebody woke a nanosecond early")
	}
	if clock.Advance(1); !<-timed {
		t.Error("SleepFor did not sleep for a minute")
	}
	if woken(dated) {
		t.Error("SleepUntil woke a day early")
	}
	if clock.Set(clock.Now().Add(24 * time.Hour)); !<-dated {
		t.Error("SleepUntil did not notice that the clock was set")
	}
	if !clock.SleepFor(t.Context(), 0) || !clock.SleepFor(t.Context(), -1) || !clock.SleepUntil(t.Context(), clock.Now()) {
		t.Error("slept for what is past")
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	ctx, cancel := context.WithCancelCause(t.Context())
	timed, dated := sleepers(ctx, clock, clock.Now().Add(time.Hour))
	asleep(t, clock, 2)
	left := errors.New("left")
	cancel(left)
	if <-timed || <-dated {
		t.Error("they were not told")
	}
	if clock.SleepFor(ctx, time.Hour) || clock.SleepFor(ctx, 0) || clock.SleepUntil(ctx, clock.Now()) {
		t.Error("slept under a ctx that has ended")
	}
	if err := clock.AwaitSleepers(ctx, 1); err != left {
		t.Errorf("AwaitSleepers: %v", err)
	}
}

// A whole fail-over without a bubble: a leader keeps its lease while time passes in steps, with AwaitSleepers
// in between. Then it is cut off, and the other leads when the term is over by the clock, not before. The
// store is on the same clock, so that nobody's clock is proved wrong.
func TestFailOver(t *testing.T) {
	clock := fakeclock.New(time.Time{})
	election := memory.New(&memory.Options{Clock: clock})
	ctx, cancel := context.WithCancel(t.Context())
	start := func(id string) (*memory.Decider, *leaderelection.Campaign, chan struct{}) {
		store, elected := election.Handle(), make(chan struct{})
		c, err := leaderelection.Config{
			Decider: store, LeaderID: id, Clock: clock, TermLength: 15 * time.Second, MaxClockSkew: time.Second,
			OnElected: func(context.Context, *leaderelection.TimeView) { close(elected) }, // once
		}.Start(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return store, c, elected
	}
	storeOfA, a, elected := start("a")
	<-elected
	_, b, elected := start("b")
	for range 60 { // five minutes
		asleep(t, clock, 2)
		clock.Advance(5 * time.Second)
	}
	asleep(t, clock, 2)
	view, cut := a.View(), clock.Now()
	if !view.ValueInFuture() || election.Entry().LeaderID != "a" {
		t.Fatal("a has lost its lead")
	}
	storeOfA.Inject(memory.LoseRequests())
	until := func(done <-chan struct{}) {
		t.Helper()
		if err := clock.AdvanceUntil(soon(t), done); err != nil {
			t.Fatal(err)
		}
	}
	until(elected)
	if took := clock.Now().Sub(cut); view.ValueInFuture() || took < 14*time.Second || took > 18*time.Second {
		t.Errorf("b leads after %v, and a's view is in the future: %v", took, view.ValueInFuture())
	}
	cancel()
	until(a.Done())
	until(b.Done())
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
