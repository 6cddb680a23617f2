package s3_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	server := fakes3.Serve(t)
	bucket, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server+"/elections", nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := http.DefaultClient.Do(bucket)
	if err != nil {
		t.Fatal(err)
	}
	made.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	relay := stores.NewRelay(t, stores.HTTP2Before(t, server))
	d, err := open(t, "s3://elections/one?region=us-east-1&path_style=true&endpoint="+url.QueryEscape("https://"+relay.Addr))
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Abandons(t, d, relay.Swallow)
}
