package frometcd

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
)

// Bridge runs work when host leads the new election and the old one.
func Bridge(ctx context.Context, client *clientv3.Client, host string, work func(context.Context, *leaderelection.TimeView)) error {
	return After(ctx, client, host, func(leading context.Context, view *leaderelection.TimeView) {
		for leading.Err() == nil {
			err := Before(leading, client, host, func(ctx context.Context) { work(ctx, view) })
			if err != nil && leading.Err() == nil {
				log.Print("the old election: ", err)
				pause(leading, time.Second)
			}
		}
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
