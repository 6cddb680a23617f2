package hinted_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"cloud.google.com/go/storage"
	"github.com/nats-io/nats.go"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/hinted"
	"github.com/c8e606e4/leaderelection/deciders/memory"
)

// A record on a store that cannot push. Each candidate announces what it writes, here by
// a Signal within the process, and so the second one leads at once when the first one
// goes, not at its next poll.
func Example() {
	var signal hinted.Signal
	election := memory.NewDecider()
	decider := hinted.Options{
		Announce: func(context.Context) { signal.Changed() },
	}.New(election.Polled(), signal.Hints)

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

// The record is an object on Google Cloud Storage, and candidates tell each other of it
// on a NATS subject.
func ExampleOptions_New() {
	ctx := context.Background()
	client, err := storage.NewClient(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	const subject = "elections.nightly"
	decider := hinted.Options{
		Announce: func(ctx context.Context) {
			if err := nc.Publish(subject, nil); err == nil {
				_ = nc.FlushWithContext(ctx) // so that it is sent before a process ends
			}
		},
	}.New(
		gcs.NewDecider(client, "my-bucket", "elections/nightly", nil),
		func(ctx context.Context, changed func()) error {
			s, err := nc.Subscribe(subject, func(*nats.Msg) { changed() })
			if err != nil {
				return err
			}
			defer s.Unsubscribe()
			changed() // it listens
			<-ctx.Done()
			return nil
		},
	)
	err = leaderelection.Config{Decider: decider, LeaderID: "worker-1"}.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return context.Cause(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// The store's notifications come to a webhook, and go on to all feeds of the process.
func ExampleSignal() {
	var signal hinted.Signal
	webhook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { signal.Changed() }))
	defer webhook.Close()

	election := memory.NewDecider()
	decider := hinted.New(election.Polled(), signal.Hints)
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
