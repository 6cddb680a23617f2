package dynamo_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	candidate := leaderelection.Config{Decider: dynamo.NewDecider(dynamodb.NewFromConfig(cfg), "elections", "reports/nightly", nil), LeaderID: "web-1"}
	log.Print(candidate.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
