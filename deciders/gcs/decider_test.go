package gcs_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

const bucket = "elections"

// client returns one for the emulator at url.
func client(t testing.TB, url string, more ...option.ClientOption) *storage.Client {
	t.Helper()
	c, err := storage.NewClient(context.WithoutCancel(t.Context()),
		append([]option.ClientOption{option.WithEndpoint(url + "/storage/v1/"), option.WithoutAuthentication(), storage.WithJSONReads()}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	server := stores.FakeGCS(t, bucket)
	var elections atomic.Int64
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		object := fmt.Sprintf("some/path/%d", elections.Add(1))
		return func() leaderelection.RaceDecider { return gcs.NewDecider(client(t, server), bucket, object, nil) }
	})
}
