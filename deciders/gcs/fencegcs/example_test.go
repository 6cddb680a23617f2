package fencegcs_test

import (
	"context"
	"errors"
	"log"
	"strings"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/gcs/fencegcs"
	"github.com/c8e606e4/leaderelection/fence"
)

// A leader that shuts the earlier ones out before it reads what it goes by. Not
// run with the tests: it needs a bucket.
func Example() {
	ctx := context.Background()
	client, err := storage.NewClient(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	state := client.Bucket("my-bucket").Object("orders/state.json")
	err = leaderelection.Config{
		Decider:  gcs.NewDecider(client, "my-bucket", "elections/orders", nil),
		LeaderID: "web-1",
	}.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		token, err := fence.Gate{View: view, Election: "orders"}.Token()
		if err != nil {
			return err
		}
		if err := fencegcs.Raise(ctx, state, token); err != nil {
			return err // also where there is no such object yet
		}
		// ... read the state, and work ...
		return fencegcs.Put(ctx, state, token, strings.NewReader(`{"open":17}`), func(w *storage.Writer) {
			w.ContentType = "application/json"
		})
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
