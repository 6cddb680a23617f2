//go:build !no_gcs

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
)

func init() {
	has("no_gcs", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(gcs.Open(ctx, u))
	})
}
