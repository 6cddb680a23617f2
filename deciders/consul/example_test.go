package consul_test

import (
	"context"
	"log"
	"os"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	decider := consul.NewDecider(nil, "http://127.0.0.1:8500", "elections/nightly", &consul.Options{
		Token: func() (string, error) { return os.Getenv("CONSUL_HTTP_TOKEN"), nil },
	})
	log.Print(leaderelection.Config{Decider: decider, LeaderID: "web-1"}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
