package natskv_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

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
	decider := natskv.NewDecider(js, "elections", "billing", &natskv.Options{
		Create: &jetstream.KeyValueConfig{Replicas: 1}, // 3 in a cluster
	})

	ctx, cancel := context.WithCancel(context.Background())
	err = leaderelection.Config{
		Decider:  decider,
		LeaderID: "web-1",
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			fmt.Println("leading with a fencing token:", view.ElectionNumber() > 0)
			if view.ValueInFuture() {
				fmt.Println("acting")
			}
			cancel() // a real one leads on
		},
	}.Acquire(ctx)
	fmt.Println(err)

	// Its record stays, vacant: the next leader's number is one greater.
	e, err := decider.ReadCurrent(context.Background())
	fmt.Println(e.Vacant(), e.ElectionNumber > 0, err)

	// This prints:
	// leading with a fencing token: true
	// acting
	// context canceled
	// true true <nil>
}
