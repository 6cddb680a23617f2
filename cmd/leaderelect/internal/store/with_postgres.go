//go:build !no_postgres

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
)

func init() {
	has("no_postgres", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(postgres.Open(ctx, u))
	})
}
