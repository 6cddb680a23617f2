package main

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

const bucket = "elections"

// decider is one that reaches the emulator, or whatever else, by c: the real
// client, without sockets.
func decider(t testing.TB, c *http.Client) *gcs.Decider {
	t.Helper()
	client, err := storage.NewClient(context.Background(), option.WithHTTPClient(c),
		option.WithEndpoint("http://in-process/storage/v1/"), storage.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	return gcs.NewDecider(client, bucket, "one", nil)
}

func serve(t testing.TB) http.Handler {
	t.Helper()
	h, err := Handler(bucket)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// refusal is an answer of Cloud Storage itself.
func refusal(status int, reason string) httpfault.Fault {
	return httpfault.Fault{
		Status: status,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   fmt.Sprintf(`{"error":{"code":%d,"message":"said the server","errors":[{"domain":"global","reason":%q}]}}`, status, reason),
	}
}

// overHTTP is the real client over the emulator.
func overHTTP(t *testing.T) overhttp.Store {
	return overhttp.Store{
		Serve:   func() http.Handler { return serve(t) },
		Decider: func(c *http.Client) leaderelection.RaceDecider { return decider(t, c) },
		Place:   "gs://elections/one",
		Writes:  func(r *http.Request) bool { return r.Method == http.MethodPost },
		Busy: map[string]httpfault.Fault{
			"RateLimit":      refusal(http.StatusTooManyRequests, "rateLimitExceeded"),
			"UserRateLimit":  refusal(http.StatusForbidden, "userRateLimitExceeded"),
			"BackendError":   refusal(http.StatusServiceUnavailable, "backendError"),
			"InternalError":  refusal(http.StatusInternalServerError, "internalError"),
			"Conflict":       refusal(http.StatusConflict, "conflict"),
			"RequestTimeout": refusal(http.StatusRequestTimeout, "uploadBrokenConnection"),
		},
	}
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t)) }

// Whole elections by seed, with faults on HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t), 100) }

// Nothing that something else answers is believed.
func TestDisbelieves(t *testing.T) {
	s := overHTTP(t)
	overhttp.Disbelieves(t, s, &httpfault.Transport{Handler: s.Serve()})
}

func TestNobodyLeads(t *testing.T) { overhttp.NobodyLeads(t, overHTTP(t)) }
