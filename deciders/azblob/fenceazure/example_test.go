package fenceazure_test

import (
	"context"
	"errors"
	"log"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection"
	azdecider "github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/fenceazure"
	"github.com/c8e606e4/leaderelection/fence"
)

// A leader that shuts the earlier ones out before it reads what it goes by. Not
// run with the tests: it needs a storage account.
func Example() {
	client, err := azblob.NewClientFromConnectionString("DefaultEndpointsProtocol=https;AccountName=...", nil)
	if err != nil {
		log.Fatal(err)
	}
	state := client.ServiceClient().NewContainerClient("orders").NewBlockBlobClient("state.json")
	err = leaderelection.Config{
		Decider:  azdecider.NewDecider(client, "elections", "orders", nil),
		LeaderID: "web-1",
	}.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		token, err := fence.Gate{View: view, Election: "orders"}.Token()
		if err != nil {
			return err
		}
		if err := fenceazure.Raise(ctx, state, token, nil); err != nil {
			return err // also where there is no such blob yet
		}
		// ... read the state, and work ...
		return fenceazure.Put(ctx, state, token, strings.NewReader(`{"open":17}`), &blockblob.UploadOptions{
			HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("application/json")},
		})
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
