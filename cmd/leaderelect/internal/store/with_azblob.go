//go:build !no_azblob

package store

import (
	"context"
	"net/url"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
)

func init() {
	has("no_azblob", func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		return some(azblob.Open(ctx, u))
	})
}
