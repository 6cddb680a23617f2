package s3_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/stores/fakes3"
)

func ExampleNewDecider() {
	server := httptest.NewServer(fakes3.Handler())
	defer server.Close()

	ctx, cancel := context.WithCancel(context.Background())
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithRegion("us-east-1"),
		config.WithBaseEndpoint(server.URL), // leave these two out for Amazon's
		config.WithCredentialsProvider(as("root")))
	if err != nil {
		log.Fatal(err)
	}
	client := awss3.NewFromConfig(cfg, func(o *awss3.Options) { o.UsePathStyle = true }) // and this
	if _, err := client.CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: aws.String("elections")}); err != nil {
		log.Fatal(err)
	}

	decider := s3.NewDecider(client, "elections", "reports/nightly", nil)
	if err := decider.VerifyConditionalWrites(ctx); err != nil {
		log.Fatal(err) // a server that cannot decide an election
	}
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
