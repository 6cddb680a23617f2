package dynamo_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
)

func ExampleNewDecider() {
	emulator := httptest.NewServer(newFake("key"))
	defer emulator.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion("eu-central-1"),
		config.WithBaseEndpoint(emulator.URL), // leave these two out for Amazon's
		config.WithCredentialsProvider(aws.CredentialsProviderFunc(credentials)))
	if err != nil {
		log.Fatal(err)
	}
	decider := dynamo.NewDecider(dynamodb.NewFromConfig(cfg), "elections", "reports/nightly", nil)

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

	// Output:
	// leading with a fencing token: true
	// acting
	// context canceled
	// true true <nil>
}
