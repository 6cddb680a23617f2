package gcs_test

import (
	"net/url"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.HTTP2Before(t, stores.FakeGCS(t, bucket)))
	d := feedtest.Opened(t, gcs.Open, "gs://"+bucket+"/abandoned?anonymous=true&endpoint="+url.QueryEscape("https://"+relay.Addr))
	feedtest.Abandons(t, d, relay.Swallow)
}
