package dynamo_test

import (
	"net/url"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	stores.AWSAlone(t, "key", "secret")
	relay := stores.NewRelay(t, stores.HTTP2(t, newFake("key")))
	d, err := feedtest.Open(t.Context(), dynamo.Open, "dynamodb://elections/one?region=eu-central-1&endpoint="+url.QueryEscape("https://"+relay.Addr))
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, d, relay.Swallow)
}
