//go:build go1.25

package s3_test

import (
	"context"
	"net/http"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// refusal is an answer of S3 itself.
func refusal(status int, code string) httpfault.Fault {
	return httpfault.Fault{
		Status: status,
		Header: http.Header{"Content-Type": {"application/xml"}},
		Body:   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>said the server</Message></Error>",
	}
}

func TestElections(t *testing.T) { overhttp.Elections(t, overHTTP(t)) }

// Whole elections, by seed, with whatever can go wrong with HTTP.
func TestSeeds(t *testing.T) { overhttp.Seeds(t, overHTTP(t), 50) }

// overHTTP is the store, for elections over its real client.
func overHTTP(t *testing.T) overhttp.Store {
	return overhttp.Store{
		Serve: func() http.Handler {
			h := fakes3.Handler()
			createBucket(t, h, "elections")
			return h
		},
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			return s3.NewDecider(inProcess(t, c), "elections", "one", nil)
		},
		Place:  `S3 bucket "elections", object "one"`,
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
		Busy: map[string]httpfault.Fault{
			"SlowDown":       refusal(http.StatusServiceUnavailable, "SlowDown"),
			"InternalError":  refusal(http.StatusInternalServerError, "InternalError"),
			"RequestTimeout": refusal(http.StatusBadRequest, "RequestTimeout"),
			"Conflict":       refusal(http.StatusConflict, "ConditionalRequestConflict"),
		},
	}
}

// reach returns a client of a server in process. It uses TLS, as far as it knows.
func reach(t testing.TB, h http.Handler) *awss3.Client {
	return inProcess(t, &http.Client{Transport: &httpfault.Transport{Handler: h}})
}

// inProcess returns a client without sockets.
func inProcess(t testing.TB, c *http.Client) *awss3.Client {
	return newClient(t, "https://in-process", func(o *awss3.Options) { o.HTTPClient = c })
}

// createBucket creates a bucket on a server in process.
func createBucket(t testing.TB, h http.Handler, name string) {
	t.Helper()
	ctx := context.Background() // t.Context may be of another bubble
	if _, err := reach(t, h).CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
}
