package azblob_test

import (
	"context"
	"fmt"
	"log"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
)

// One blob elects the leader of a batch job.
func Example() {
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := sdk.NewClient("https://account.blob.core.windows.net/", credential, nil)
	if err != nil {
		log.Fatal(err)
	}
	config := leaderelection.Config{Decider: azblob.NewDecider(client, "elections", "nightly", nil), LeaderID: "worker-1"}
	log.Print(config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}

// A URL names the election. Opening it asks nothing of the store yet.
func ExampleOpen() {
	u, err := url.Parse("azblob://account/elections/nightly?native_lease=30s&companion=nightly/report&create=true")
	if err != nil {
		log.Fatal(err)
	}
	if _, err = azblob.Open(context.Background(), u); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")

	u.RawQuery = "native_leese=30s"
	_, err = azblob.Open(context.Background(), u)
	fmt.Println(err)
	// Output:
	// ready
	// leaderelection/azblob: opening azblob://account/elections/nightly?native_leese=xxxxx: there is no parameter "native_leese"; there are companion, content_type, create, create_companions, encryption_scope, endpoint, metadata, native_lease: leaderelection: no retry can help
}
