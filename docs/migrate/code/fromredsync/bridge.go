package fromredsync

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
)

// Bridge runs job as leader of the new election and under the old lock.
func Bridge(ctx context.Context, client goredis.UniversalClient, host string, job func(context.Context, *leaderelection.TimeView) error) error {
	return After(ctx, client, host, func(leading context.Context, view *leaderelection.TimeView) error {
		return Before(leading, client, func(ctx context.Context) error { return job(ctx, view) })
	})
}
