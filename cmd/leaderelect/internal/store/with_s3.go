//go:build !no_s3

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
)

func init() {
	has("no_s3", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(s3.Open(ctx, u))
	})
}
