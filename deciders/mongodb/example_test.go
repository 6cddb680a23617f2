package mongodb_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
)

func ExampleNewDecider() {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://db-0,db-1,db-2/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Disconnect(context.Background())

	host, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	err = leaderelection.Config{
		Decider:  mongodb.NewDecider(client, "ops", "elections", "web", nil),
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
