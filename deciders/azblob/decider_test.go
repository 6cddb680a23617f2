package azblob_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	sdk "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/azblob/azlease"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

const containerName = "elections"

// client returns one for the Azurite at account.
func client(t testing.TB, account string, opts *sdk.ClientOptions) *sdk.Client {
	t.Helper()
	key, err := sdk.NewSharedKeyCredential(stores.AzuriteAccount, stores.AzuriteKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClientWithSharedKeyCredential(account, key, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// azurite starts one with the container.
func azurite(t testing.TB) (account string) {
	t.Helper()
	account = stores.Azurite(t)
	if _, err := client(t, account, nil).CreateContainer(t.Context(), containerName, nil); err != nil {
		t.Fatal(err)
	}
	return account
}

func TestConformance(t *testing.T) {
	server := azurite(t)
	for name, opts := range map[string]*azblob.Options{
		"Plain":       nil,
		"NativeLease": {Leases: azlease.New(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Plain" {
				t.Skip("nightly: the suite once more")
			}
			var elections atomic.Int64
			decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
				blob := fmt.Sprintf("some/path/%s %d", name, elections.Add(1))
				return func() leaderelection.RaceDecider {
					return azblob.NewDecider(client(t, server, nil), containerName, blob, own(opts))
				}
			}, nil)
		})
	}
}
