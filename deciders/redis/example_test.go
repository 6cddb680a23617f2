package redis_test

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// Of all processes that run this, one at a time does the job.
func Example() {
	client := goredis.NewClient(&goredis.Options{ // of a server with appendfsync always
		Addr: "localhost:6379", MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	defer client.Close()
	config := leaderelection.Config{
		Decider:  redis.NewDecider(client, "election:nightly", nil),
		LeaderID: "web-1",
	}
	err := config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		fmt.Println("leading:", view.ElectionNumber(), view.ValueInFuture())
		return nil
	})
	fmt.Println(err)
}
