package gcs_test

import (
	"context"
	"fmt"
	"log"
	"net/url"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
)

// One object of a bucket elects the leader of a batch job.
func Example() {
	ctx := context.Background()
	client, err := storage.NewClient(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	config := leaderelection.Config{Decider: gcs.NewDecider(client, "my-bucket", "elections/nightly", nil), LeaderID: "worker-1"}
	log.Print(config.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

// A URL names the election, and in tests the emulator that keeps it. Opening it
// asks nothing of the store yet.
func ExampleOpen() {
	u, err := url.Parse("gs://my-bucket/elections/nightly?anonymous=true&endpoint=http://127.0.0.1:4443&metadata=team=reports")
	if err != nil {
		log.Fatal(err)
	}
	d, err := gcs.Open(context.Background(), u)
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	fmt.Println("ready")

	u.RawQuery = "anonymus=true"
	_, err = gcs.Open(context.Background(), u)
	fmt.Println(err)
	// Output:
	// ready
	// leaderelection/gcs: opening gs://my-bucket/elections/nightly?anonymus=xxxxx: there is no parameter "anonymus"; there are anonymous, cache_control, content_type, endpoint, kms_key, metadata: leaderelection: no retry can help
}
