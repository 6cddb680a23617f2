package s3_test

import (
	"context"
	"net/http"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// refusal is an answer of S3 itself.
func refusal(status int, code string) httpfault.Fault {
	return httpfault.Fault{
		Status: status,
		Header: http.Header{"Content-Type": {"application/xml"}},
		Body:   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>" + code + "</Code><Message>said the server</Message></Error>",
	}
}

func TestElections(t *testing.T) {
	httpfault.Elections(t, httpfault.Store{
		Serve: func() http.Handler {
			h := stores.FakeS3()
			createBucket(t, h, "elections")
			return h
		},
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			client := newClient(t, "http://in-process", func(o *awss3.Options) { o.HTTPClient = c })
			return s3.NewDecider(client, "elections", "one", nil)
		},
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPut },
		Busy: map[string]httpfault.Fault{
			"SlowDown":       refusal(http.StatusServiceUnavailable, "SlowDown"),
			"InternalError":  refusal(http.StatusInternalServerError, "InternalError"),
			"RequestTimeout": refusal(http.StatusBadRequest, "RequestTimeout"),
			"Conflict":       refusal(http.StatusConflict, "ConditionalRequestConflict"),
		},
	})
}

// createBucket creates a bucket on a server in process.
func createBucket(t testing.TB, h http.Handler, name string) {
	t.Helper()
	client := newClient(t, "http://in-process", func(o *awss3.Options) {
		o.HTTPClient = &http.Client{Transport: &httpfault.Transport{Handler: h}}
	})
	if _, err := client.CreateBucket(context.Background(), &awss3.CreateBucketInput{Bucket: &name}); err != nil { // t.Context is not of this bubble
		t.Fatal(err)
	}
}
