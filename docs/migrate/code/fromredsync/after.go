package fromredsync

import (
	"context"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// After runs job as leader. It waits for its turn for as long as ctx lasts.
func After(ctx context.Context, client goredis.UniversalClient, host string, job func(context.Context, *leaderelection.TimeView) error) error {
	return leaderelection.Config{
		Decider:    redis.NewDecider(client, "election:report", nil),
		LeaderID:   host,
		TermLength: 15 * time.Second,
	}.Run(ctx, job)
}
