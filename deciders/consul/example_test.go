package consul_test

import (
	"context"
	"fmt"
	"os"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/consul"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	config := leaderelection.Config{
		Decider: consul.NewDecider(nil, "http://127.0.0.1:8500", "elections/nightly", &consul.Options{
			Token: func() (string, error) { return os.Getenv("CONSUL_HTTP_TOKEN"), nil },
		}),
		LeaderID: "web-1",
	}
	err := config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading in election", view.ElectionNumber(), view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
}
