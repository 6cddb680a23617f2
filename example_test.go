//go:build go1.25

package leaderelection_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A batch job for one of several machines: Run waits for leadership, runs the job once, and
// releases the record.
func ExampleConfig_Run() {
	candidate := leaderelection.Config{
		Decider:  memory.NewDecider(), // in earnest: a store that all machines share
		LeaderID: "worker-7",
	}
	due := []string{"A-1", "A-2"} // in earnest: what a table says is not sent yet
	err := candidate.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		for ; len(due) > 0; due = due[1:] {
			if ctx.Err() != nil || !view.ValueInFuture() { // before each act
				return context.Cause(ctx)
			}
			fmt.Println("sent", due[0], "with a fencing token:", view.ElectionNumber() > 0)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent A-1 with a fencing token: true
	// sent A-2 with a fencing token: true
	// <nil>
}

// A job that cron fires on every machine: one machine runs it. The others find that another has
// it, even if they are late.
func ExampleConfig_Once() {
	election := memory.NewDecider()
	hold := leaderelection.OnceOptions{Hold: 50 * time.Second} // cron fires each minute
	for _, machine := range []string{"one", "two", "late"} {
		err := leaderelection.Config{
			Decider:  election,
			LeaderID: machine,
		}.Once(context.Background(), hold, func(context.Context, *leaderelection.TimeView) error {
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

// A candidate that leads now or not at all.
func ExampleConfig_TryAcquire() {
	election := memory.NewDecider()
	ctx, cancel := context.WithCancel(context.Background())
	first, err := leaderelection.Config{Decider: election, LeaderID: "node-a"}.TryAcquire(ctx)
	fmt.Println(first.View().ValueInFuture(), err)
	_, err = leaderelection.Config{Decider: election, LeaderID: "node-b"}.TryAcquire(ctx)
	var other *leaderelection.NotElectedError
	if errors.As(err, &other) {
		fmt.Println(other.Leader.LeaderID, "leads")
	}
	cancel()
	<-first.Done() // released
	// Output:
	// true <nil>
	// node-a leads
}

// A candidate that is not healthy only after three failed checks in a row.
func ExampleConfig_failuresInARow() {
	check := func(context.Context) error { return errors.New("the database does not answer") } // the program's own
	failures := 0
	config := leaderelection.Config{Decider: memory.NewDecider(), LeaderID: "node-a"}
	config.Healthy = func(ctx context.Context) error {
		err := check(ctx)
		if err == nil {
			failures = 0
		} else if failures++; failures < 3 {
			err = nil
		}
		return err
	}
	for range 3 {
		ctx, stop := context.WithCancel(context.Background())
		campaign, err := config.TryAcquire(ctx)
		fmt.Println("leads:", err == nil)
		stop()
		if err == nil {
			<-campaign.Done()
		}
	}
	// Output:
	// leads: true
	// leads: true
	// leads: false
}

// A service that leads for as long as it can, and stands by otherwise.
func ExampleConfig_Acquire() {
	ctx, shutDown := context.WithCancel(context.Background())
	err := leaderelection.Config{
		Decider:  memory.NewDecider(),
		LeaderID: "node-a",
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			fmt.Println("leading:", view.ValueInFuture())
			shutDown() // as a signal would
			<-ctx.Done()
			fmt.Println("winding down with the lease kept:", view.ValueInFuture())
		},
		OnOusting: func(context.Context) {},
	}.Acquire(ctx)
	fmt.Println("released:", errors.Is(err, context.Canceled))
	// Output:
	// leading: true
	// winding down with the lease kept: true
	// released: true
}

// A program without callbacks: it waits until it leads, and asks the view before each act.
func ExampleCampaign_Lead() {
	ctx, shutDown := context.WithCancel(context.Background())
	act := func(token leaderelection.ElectionNumber) {
		fmt.Println("act with a fencing token:", token > 0)
		shutDown() // as a signal would
	}
	campaign, err := leaderelection.Config{Decider: memory.NewDecider(), LeaderID: "node-a"}.Start(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for {
		leading, err := campaign.Lead(ctx) // waits until this instance leads
		if err != nil {
			break // ctx has ended
		}
		for view := leading.View(); leading.Context().Err() == nil && view.ValueInFuture(); {
			act(view.ElectionNumber())
			view.Clock().SleepFor(leading.Context(), time.Minute)
		}
		leading.Release() // the lease was kept until here
	}
	<-campaign.Done() // until it is released
	fmt.Println(campaign.Status())
	// Output:
	// act with a fencing token: true
	// stopped
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
		fmt.Println(e.LeaderID, "is at", e.HostPort)
		if e.HostPort[0] == "10.0.0.8:8080" {
			stop()
		}
		_ = campaign.Announce([]string{"10.0.0.8:8080"}, nil)
	})
	_ = campaign.Wait()
	// Output:
	// node-a is at [10.0.0.7:8080]
	// node-a is at [10.0.0.8:8080]
}

// A router that sends its clients to the leader.
func ExampleWatchConfig_Watch() {
	election := memory.NewDecider()
	election.Replace(&leaderelection.RaceEntry{
		LeaderID: "node-a", HostPort: []string{"10.0.0.7:8080"}, ElectionNumber: 41, Incarnation: "x",
		TermLength: 15 * time.Second, TermExpiry: time.Now().Add(15 * time.Second),
	})
	ctx, stop := context.WithCancel(context.Background())
	_ = leaderelection.WatchConfig{Decider: election}.Watch(ctx,
		func(_ context.Context, e leaderelection.RaceEntry) {
			fmt.Println("token", e.ElectionNumber, "is at", e.HostPort)
			stop()
		})
	// Output: token 41 is at [10.0.0.7:8080]
}

// An operator asks the leader to hand over.
func ExampleTransfer() {
	election := memory.NewDecider()
	err := leaderelection.Transfer(context.Background(), election, "node-b")
	fmt.Println(errors.Is(err, leaderelection.ErrNoLeader), "-", err)
	// Output: true - leaderelection: there is no leader to ask: nobody has led yet
}
