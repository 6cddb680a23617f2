package natskv_test

import (
	"context"
	"log"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	nc, err := nats.Connect(nats.DefaultURL, natskv.ConnectOptions()...)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	log.Print(leaderelection.Config{Decider: natskv.NewDecider(js, "elections", "billing", nil), LeaderID: "web-1"}.Run(context.Background(), work))
}

// work is done by the leader.
func work(ctx context.Context, view *leaderelection.TimeView) error {
	return ctx.Err() // ask view.ValueInFuture() before each act
}
