//go:build go1.25

package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// What the options ask for is in each request that can have it.
func TestOptionsOfRequests(t *testing.T) {
	sent := map[string]http.Header{}
	var mu sync.Mutex
	client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		mu.Lock()
		sent[r.Method] = r.Header.Clone()
		mu.Unlock()
		server.ServeHTTP(w, r)
	})
	d := s3.NewDecider(client, "elections", "one", &s3.Options{
		ExpectedBucketOwner: "123456789012", Metadata: map[string]string{"team": "a b"},
	})
	if err := d.VerifyConditionalWrites(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		if got := sent[method].Get("X-Amz-Expected-Bucket-Owner"); got != "123456789012" {
			t.Errorf("%s wants the bucket of %q", method, got)
		}
	}
	if got := sent[http.MethodPut].Get("X-Amz-Meta-Team"); got != "a b" {
		t.Errorf("the metadata is %q", got)
	}
}

// What no server would take is refused by each call, and before anything is sent.
func TestOptionsRefused(t *testing.T) {
	for says, o := range map[string]s3.Options{
		"letters, digits": {Metadata: map[string]string{"my team": "a"}},
		"printable ASCII": {Metadata: map[string]string{"team": "ä"}},
		"2048":            {Metadata: map[string]string{"team": strings.Repeat("a", 2048)}},
		"no blank":        {Metadata: map[string]string{"team": "a "}},
	} {
		client := like(t, func(http.ResponseWriter, *http.Request, http.Handler) { t.Errorf("%s: a request was sent", says) })
		_, err := s3.NewDecider(client, "elections", "one", &o).ReadCurrent(t.Context())
		feedtest.Permanent(t, err, says)
	}
	_, err := s3.NewDecider(like(t, nil), "arn:aws:s3::123456789012:accesspoint/m1.mrap", "one", nil).ReadCurrent(t.Context())
	feedtest.Permanent(t, err, "multi-region")
}

const arn = "arn:aws:s3:eu-central-1:123456789012:accesspoint/web"

// An access point is named by its ARN, also in a URL, which says the region as well.
func TestAccessPoint(t *testing.T) {
	var sent *http.Request
	client := newClient(t, "https://s3.eu-central-1.amazonaws.com", func(o *awss3.Options) {
		o.Region, o.UsePathStyle, o.BaseEndpoint = "eu-central-1", false, nil
		o.HTTPClient = &http.Client{Transport: &httpfault.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r
			failWith(w, http.StatusNotFound, "NoSuchKey")
		})}}
	})
	if e, err := s3.NewDecider(client, arn, "team/one", nil).ReadCurrent(t.Context()); err != nil || e.ElectionNumber != 0 {
		t.Fatal(e, err)
	}
	if host := sent.URL.Host; host != "web-123456789012.s3-accesspoint.eu-central-1.amazonaws.com" || sent.URL.Path != "/team/one" {
		t.Errorf("host %s, path %s", host, sent.URL.Path)
	}
	stores.AWSAlone(t, "root", "root-secret")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	for region, want := range map[string]string{"": "eu-central-1", "&region=eu-west-1": "eu-west-1"} {
		d, err := open(t, "s3:///team/one?bucket="+arn+region)
		if err != nil || d.String() != fmt.Sprintf("S3 bucket %q, object \"team/one\" in %s", arn, want) {
			t.Errorf("the place is %v (%v), want the ARN in %s", d, err, want)
		}
	}
}

// The requests have the settings of the URL.
func TestOpenAsks(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	var sent *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r
		failWith(w, http.StatusNotFound, "NoSuchKey")
	}))
	defer server.Close()
	d, err := open(t, "s3://elections/one?region=here&path_style=true&bucket_owner=123456789012&metadata=team=a&sse=aws:kms&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = d.WriteEntry(t.Context(), &first)
	for name, want := range map[string]string{"Expected-Bucket-Owner": "123456789012", "Meta-Team": "a", "Server-Side-Encryption": "aws:kms"} {
		if got := sent.Header.Get("X-Amz-" + name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for query, says := range map[string]string{
		"/one?bucket=web":                       "an ARN such as arn:aws:s3:",
		"/one?bucket=arn:aws:dynamodb:eu-1:1:x": "an ARN such as arn:aws:s3:",
		"other/one?bucket=" + arn:               "leave one of them out",
		"b/one?metadata=team":                   "key=value",
	} {
		_, err := open(t, "s3://"+query)
		if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a permanent error that says %q", query, err, says)
		}
	}
}
