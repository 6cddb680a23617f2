package gcs_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// Nothing that something else answers is believed. Whole campaigns are held to that
// beside the emulator, in internal/test/stores/servers/fakegcs.
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

// Behind an endpoint may be anything: one that takes no notice of the condition has nobody
// lead, and one that does is asked once.
func TestEndpointProvesItself(t *testing.T) {
	server, err := url.Parse(stores.FakeGCS(t, bucket))
	if err != nil {
		t.Fatal(err)
	}
	for name, deaf := range map[string]func(generation string) bool{
		"Sound":            func(string) bool { return false },
		"DeafToGeneration": func(generation string) bool { return generation != "0" },
		"DeafToNone":       func(generation string) bool { return generation == "0" },
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(server)
				if r.In.Method != http.MethodPost {
					return
				}
				writes++
				if q := r.Out.URL.Query(); deaf(q.Get("ifGenerationMatch")) {
					q.Del("ifGenerationMatch")
					r.Out.URL.RawQuery = q.Encode()
				}
			}}
			front := httptest.NewServer(proxy)
			defer front.Close()
			u, err := url.Parse(fmt.Sprintf("gs://%s/%s?anonymous=true&endpoint=%s", bucket, name, front.URL))
			if err != nil {
				t.Fatal(err)
			}
			d, err := gcs.Open(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			token, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i"})
			if name != "Sound" {
				feedtest.Permanent(t, err, "no notice of conditions")
				if e, err := d.ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
					t.Errorf("a read returns %+v, %v", e, err)
				}
				return
			}
			if err != nil || writes != 3 {
				t.Fatalf("%v, after %d writes, want 3", err, writes)
			}
			if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Extension: 1, Incarnation: "i", Token: token}); err != nil || writes != 4 {
				t.Errorf("%v, after %d writes, want 4", err, writes)
			}
		})
	}
}
