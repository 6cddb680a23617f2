package zookeeper_test

import (
	"context"
	"log"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	conn, err := zookeeper.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	decider := zookeeper.NewDecider(conn, "/elections/nightly", &zookeeper.Options{CreateParents: true})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
