package etcd_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	client, err := clientv3.New(clientv3.Config{ // the keep-alives notice a network that swallows packets
		Endpoints: []string{"http://etcd-0:2379"}, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	config := leaderelection.Config{Decider: etcd.NewDecider(client, "elections/web", nil), LeaderID: "web-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
