package etcd_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
)

func ExampleNewDecider() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"http://etcd-0:2379", "http://etcd-1:2379", "http://etcd-2:2379"},
		DialKeepAliveTime:    10 * time.Second, // so that a network that swallows packets is noticed
		DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	err = leaderelection.Config{
		Decider:  etcd.NewDecider(client, "elections/web", nil),
		LeaderID: host,
		OnElected: func(ctx context.Context, view *leaderelection.TimeView) {
			for view.ValueInFuture() {
				fmt.Println("acting with fencing token", view.ElectionNumber())
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Second):
				}
			}
		},
	}.Acquire(context.Background())
	log.Fatal(err)
}
