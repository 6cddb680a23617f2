package gcs_test

import (
	"net/http"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/simtest/overhttp"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// Nothing that something else answers is believed. Whole campaigns are held to that
// beside the emulator, in internal/servers/fakegcs.
func TestDisbelieves(t *testing.T) {
	url := stores.FakeGCS(t, bucket)
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	overhttp.Disbelieves(t, overhttp.Store{
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			client, err := storage.NewClient(t.Context(), option.WithEndpoint(url+"/storage/v1/"), storage.WithJSONReads(), option.WithHTTPClient(c))
			if err != nil {
				t.Fatal(err)
			}
			return gcs.NewDecider(client, bucket, "one", nil)
		},
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPost },
	}, tr)
}
