//go:build !no_mongodb

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/mongodb"
)

func init() {
	has("no_mongodb", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(mongodb.Open(ctx, u))
	})
}
