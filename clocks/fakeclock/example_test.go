package fakeclock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks/fakeclock"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

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
