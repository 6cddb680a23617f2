package azblob_test

import (
	"net/url"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	relay := stores.NewRelay(t, stores.HTTP2(t, newFake()))
	d, err := feedtest.Open(t.Context(), azblob.Open, "azblob://account/"+containerName+"/one?endpoint="+url.QueryEscape("https://"+relay.Addr+"/account"))
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, d, relay.Swallow)
}
