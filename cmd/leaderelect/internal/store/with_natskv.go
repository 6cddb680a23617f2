//go:build !no_nats

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
)

func init() {
	has("no_nats", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(natskv.Open(ctx, u))
	})
}
