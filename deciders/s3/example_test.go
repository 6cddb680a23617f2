package s3_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
)

// The Example of package memory is a whole election.
func ExampleNewDecider() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	decider := s3.NewDecider(awss3.NewFromConfig(cfg), "elections", "reports/nightly", nil) // see VerifyConditionalWrites
	candidate := leaderelection.Config{Decider: decider, LeaderID: "web-1"}
	log.Print(candidate.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

// A bucket whose policy demands a tag of each object that is written.
func ExampleClient() {
	cfg, err := config.LoadDefaultConfig(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s3.NewDecider(tagged{awss3.NewFromConfig(cfg)}, "elections", "reports/nightly", nil))
}

// tagged is a client that tags what it writes.
type tagged struct{ *awss3.Client }

func (c tagged) PutObject(ctx context.Context, in *awss3.PutObjectInput, opts ...func(*awss3.Options)) (*awss3.PutObjectOutput, error) {
	in.Tagging = aws.String("cost-center=42")
	return c.Client.PutObject(ctx, in, opts...)
}
