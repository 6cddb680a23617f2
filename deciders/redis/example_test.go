package redis_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	server, err := miniredis.Run() // in earnest: a server with appendfsync always
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	client := goredis.NewClient(&goredis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	config := leaderelection.Config{
		Decider:  redis.NewDecider(client, "election:nightly", nil),
		LeaderID: "web-1",
	}
	err = config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading in election", view.ElectionNumber(), view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading in election 1 true
	// <nil>
}
