package natskv_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

func ExampleNewDecider() {
	url, stop := exampleServer()
	defer stop()

	nc, err := nats.Connect(url, natskv.ConnectOptions()...)
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
		OnElected: func(ctx context.Context, expiry *leaderelection.TimeView) {
			fmt.Println("leading with fencing token", expiry.ElectionNumber())
			if expiry.ValueInFuture() {
				fmt.Println("acting")
			}
			cancel() // a real one leads on
		},
	}.Acquire(ctx)
	fmt.Println(err)

	// Its record stays, vacant: the next leader's number is 2.
	e, err := decider.ReadCurrent(context.Background())
	fmt.Println(e.Vacant(), e.ElectionNumber, err)

	// Output:
	// leading with fencing token 1
	// acting
	// context canceled
	// true 1 <nil>
}

// exampleServer starts a server for an example.
func exampleServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "nats")
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		log.Fatal(err)
	}
	s.Start()
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
