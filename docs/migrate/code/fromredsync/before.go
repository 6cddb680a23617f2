// Package fromredsync is the code of the guide from redsync.
package fromredsync

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redis "github.com/redis/go-redis/v9"
)

// Before runs job under the lock. It waits for the lock for as long as ctx lasts.
func Before(ctx context.Context, client redis.UniversalClient, job func(context.Context) error) error {
	mutex := redsync.New(goredis.NewPool(client)).NewMutex("lock:report",
		redsync.WithExpiry(15*time.Second),
		redsync.WithTries(1<<30), redsync.WithRetryDelay(time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	held, lost := context.WithCancelCause(ctx)
	go extend(held, mutex, lost)
	err := job(held)
	lost(nil)
	_, unlocked := mutex.UnlockContext(context.WithoutCancel(ctx))
	return errors.Join(err, unlocked)
}

// extend keeps the lock, three times an expiry, until ctx ends or an attempt fails.
func extend(ctx context.Context, mutex *redsync.Mutex, lost context.CancelCauseFunc) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if ok, err := mutex.ExtendContext(ctx); !ok {
				lost(err)
				return
			}
		}
	}
}
