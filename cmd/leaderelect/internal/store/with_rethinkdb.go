//go:build !no_rethinkdb

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
)

func init() {
	has("no_rethinkdb", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(rethinkdb.Open(ctx, u))
	})
}
