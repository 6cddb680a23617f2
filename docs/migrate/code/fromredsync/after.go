package fromredsync

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
)

// After runs job as leader. It waits for its turn for as long as ctx lasts.
func After(ctx context.Context, client goredis.UniversalClient, host string, job func(context.Context, *leaderelection.TimeView) error) error {
	return leaderelection.Config{
		Decider:      redis.NewDecider(client, "election:report", nil),
		LeaderID:     host,
		TermLength:   15 * time.Second,
		MaxClockSkew: time.Second,
	}.Run(ctx, job)
}

// ErrBusy is what AfterTry returns when another one leads.
var ErrBusy = errors.New("another one runs the job")

// AfterTry runs job as leader if its turn comes within wait: redsync's WithTries.
func AfterTry(ctx context.Context, client goredis.UniversalClient, host string, wait time.Duration, job func(context.Context, *leaderelection.TimeView) error) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	patience := time.AfterFunc(wait, func() { giveUp(ErrBusy) })
	defer patience.Stop()
	return After(ctx, client, host, func(ctx context.Context, view *leaderelection.TimeView) error {
		if !patience.Stop() {
			return ErrBusy // it came too late
		}
		return job(ctx, view)
	})
}
