package azlease_test

import (
	"context"
	"log"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
)

// With a native lease Azure itself keeps all but the leader from changing a blob.
func Example() {
	var client *sdk.Client // as in the example of azblob
	leases := azlease.New(&azlease.Options{Companions: []string{"nightly/report"}})
	d := azblob.NewDecider(client, "elections", "nightly", &azblob.Options{Leases: leases})
	config := leaderelection.Config{Decider: d, LeaderID: "worker-1"}
	err := config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		only, err := leases.Held(view)
		if err != nil {
			return err
		}
		_, err = client.UploadBuffer(ctx, "elections", "nightly/report", []byte("all is well"), &sdk.UploadBufferOptions{
			AccessConditions: &blob.AccessConditions{LeaseAccessConditions: only},
		})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
