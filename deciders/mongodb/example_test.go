package mongodb_test

import (
	"context"
	"log"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://db-0,db-1,db-2/?replicaSet=rs0"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Disconnect(ctx)
	config := leaderelection.Config{Decider: mongodb.NewDecider(client, "ops", "elections", "web", nil), LeaderID: "web-1"}
	log.Print(config.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
