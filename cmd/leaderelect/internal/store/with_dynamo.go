//go:build !no_dynamodb

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
)

func init() {
	has("no_dynamodb", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(dynamo.Open(ctx, u))
	})
}
