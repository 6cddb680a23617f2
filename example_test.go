//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A batch job that one of several machines is to run: Run waits for leadership,
// runs the job once, and releases.
func ExampleConfig_Run() {
	candidate := leaderelection.Config{
		Decider:      memory.NewDecider(), // in earnest: a store that all machines share
		LeaderID:     "worker-7",
		MaxClockSkew: time.Second,
	}
	err := candidate.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		for _, invoice := range []string{"A-1", "A-2"} {
			if !view.ValueInFuture() { // before each act
				return context.Cause(ctx)
			}
			fmt.Println("sent", invoice, "with fencing token", view.ElectionNumber())
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent A-1 with fencing token 1
	// sent A-2 with fencing token 1
	// <nil>
}

// A job that cron fires on every machine: one runs it, the others find that another has it,
// also those that are late.
func ExampleConfig_Once() {
	election := memory.NewDecider()
	for _, machine := range []string{"one", "two", "late"} {
		err := leaderelection.Config{
			Decider:  election,
			LeaderID: machine,
			Hold:     50 * time.Second, // cron fires each minute
		}.Once(context.Background(), 0, func(context.Context, *leaderelection.TimeView) error {
			fmt.Println(machine, "sends the invoices")
			return nil
		})
		fmt.Println(machine, "is done:", err == nil, "another has it:", errors.Is(err, leaderelection.ErrNotElected))
	}
	// Output:
	// one sends the invoices
	// one is done: true another has it: false
	// two is done: false another has it: true
	// late is done: false another has it: true
}

// Now or not at all.
func ExampleConfig_TryAcquire() {
	election := memory.NewDecider()
	ctx, cancel := context.WithCancel(context.Background())
	first, err := leaderelection.Config{Decider: election, LeaderID: "node-a"}.TryAcquire(ctx)
	fmt.Println(first.View().ValueInFuture(), err)
	_, err = leaderelection.Config{Decider: election, LeaderID: "node-b"}.TryAcquire(ctx)
	fmt.Println(err)
	cancel()
	<-first.Done() // released
	// Output:
	// true <nil>
	// leaderelection: not elected: another has it: "node-a" leads with election 1
}

// A service that leads for as long as it can, and stands by otherwise.
func ExampleConfig_Acquire() {
	ctx, shutDown := context.WithCancel(context.Background())
	err := leaderelection.Config{
		Decider:  memory.NewDecider(),
		LeaderID: "node-a",
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			fmt.Println("leading, election", view.ElectionNumber())
			shutDown() // as a signal would
			<-ctx.Done()
			fmt.Println("winding down with the lease kept:", view.ValueInFuture())
		},
		OnOusting: func(context.Context) {},
	}.Acquire(ctx)
	fmt.Println("released:", errors.Is(err, context.Canceled))
	// Output:
	// leading, election 1
	// winding down with the lease kept: true
	// released: true
}

// A program that needs no callbacks: it waits until it leads, and asks the view.
func ExampleCampaign_Leadership() {
	campaign, err := leaderelection.Config{Decider: memory.NewDecider(), LeaderID: "node-a"}.Start(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, view, err := campaign.Leadership(context.Background())
	fmt.Println("leading:", view.ValueInFuture(), ctx.Err(), err)
	_ = campaign.Resign(context.Background())
	fmt.Println("resigned:", view.ValueInFuture(), context.Cause(ctx))
	// Output:
	// leading: true <nil> <nil>
	// resigned: false leaderelection: resigned
}

// A leader whose address changes while it leads.
func ExampleCampaign_Announce() {
	election := memory.NewDecider()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	campaign, err := leaderelection.Config{Decider: election, LeaderID: "node-a", HostPort: []string{"10.0.0.7:8080"}}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = leaderelection.WatchConfig{Decider: election}.Watch(ctx, func(_ context.Context, e leaderelection.RaceEntry) {
		fmt.Println("election", e.ElectionNumber, "is at", e.HostPort)
		if e.HostPort[0] == "10.0.0.8:8080" {
			stop()
		}
		_ = campaign.Announce([]string{"10.0.0.8:8080"}, nil)
	})
	_ = campaign.Wait()
	// Output:
	// election 1 is at [10.0.0.7:8080]
	// election 1 is at [10.0.0.8:8080]
}

// A router that sends its clients to whoever leads.
func ExampleWatchConfig_Watch() {
	election := memory.NewDecider()
	election.Replace(&leaderelection.RaceEntry{
		LeaderID: "node-a", HostPort: []string{"10.0.0.7:8080"}, ElectionNumber: 41, Incarnation: "x",
		TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second),
	})
	ctx, stop := context.WithCancel(context.Background())
	_ = leaderelection.WatchConfig{Decider: election, MaxClockSkew: time.Second}.Watch(ctx,
		func(_ context.Context, e leaderelection.RaceEntry) {
			fmt.Println("election", e.ElectionNumber, "is at", e.HostPort)
			stop()
		})
	// Output: election 41 is at [10.0.0.7:8080]
}

// An operator asks the leader to hand over.
func ExampleTransfer() {
	election := memory.NewDecider()
	err := leaderelection.Transfer(context.Background(), election, "node-b")
	fmt.Println(errors.Is(err, leaderelection.ErrNoLeader), "-", err)
	// Output: true - leaderelection: there is no leader to ask: nobody has led yet
}

// Code that is given a view can be tested without an election.
func ExampleNewTimeView() {
	act := func(view *leaderelection.TimeView) string {
		if !view.ValueInFuture() {
			return "refused"
		}
		return "done"
	}
	view := leaderelection.NewTimeView(clocks.System()) // NewTimeViewOf: with a fencing token
	fmt.Println(act(view))
	view.Set(time.Now().Add(time.Minute))
	fmt.Println(act(view))
	// Output:
	// refused
	// done
}
