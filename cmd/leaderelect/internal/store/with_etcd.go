//go:build !no_etcd

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
)

func init() {
	has("no_etcd", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(etcd.Open(ctx, u))
	})
}
