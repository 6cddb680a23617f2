package hinted_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A record on a store that cannot push. Each candidate announces what it writes, here by
// a Signal within the process, and so the second one leads at once when the first one
// goes, not at its next poll.
func Example() {
	var signal hinted.Signal
	election := memory.NewDecider()
	decider := hinted.NewDecider(election.Polled(), signal.Hints, &hinted.Options{
		Announce: func(context.Context) { signal.Changed() },
	})

	leads := make(chan string)
	start := func(id string) (leave func()) {
		ctx, cancel := context.WithCancel(context.Background())
		campaign, err := leaderelection.Config{
			Decider:  decider,
			LeaderID: id,
			OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
				leads <- id
				<-ctx.Done()
			},
		}.Start(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return func() {
			cancel()
			<-campaign.Done()
		}
	}
	leaveA := start("a")
	fmt.Println(<-leads, "leads")
	leaveB := start("b")
	leaveA()
	fmt.Println(<-leads, "leads")
	leaveB()
	// Output:
	// a leads
	// b leads
}

// The store's notifications come to a webhook, and go on to all feeds of the process.
func ExampleSignal() {
	var signal hinted.Signal
	webhook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { signal.Changed() }))
	defer webhook.Close()

	election := memory.NewDecider()
	decider := hinted.NewDecider(election.Polled(), signal.Hints, nil)
	for e := range decider.Changes(context.Background()) {
		if !e.Vacant() {
			fmt.Println(e.LeaderID, "leads")
			break
		}
		// Somebody writes, and the store tells the webhook.
		election.Replace(&leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1})
		answer, err := http.Post(webhook.URL, "application/json", nil)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
	}
	// Output: a leads
}
