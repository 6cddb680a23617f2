package s3_test

import (
	"errors"
	"net/url"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func open(t *testing.T, address string) (*s3.Decider, error) {
	t.Helper()
	return feedtest.Open(t.Context(), s3.Open, address)
}

func openByURL(t *testing.T, endpoint string) {
	stores.AWSAlone(t, "root", "root-secret")
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	at := "?region=us-east-1&path_style=true&endpoint=" + url.QueryEscape(endpoint)
	one, err := open(t, "s3://"+bucket+"/team/one%20%C3%BC"+at+"&verify=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	if e, err := s3.NewDecider(client, bucket, "team/one ü", nil).ReadCurrent(t.Context()); err != nil || e.LeaderID != "a" {
		t.Errorf("ReadCurrent of the same = %+v, %v", e, err)
	}
	if _, err := open(t, "s3://no-such-bucket/one"+at+"&verify=true"); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("verified in a bucket that does not exist: %v, want an error that wraps ErrPermanent", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	feedtest.OpenRefuses(t, s3.Open, map[string]string{
		"gs://bucket/one":                         "scheme",
		"s3://key:s3cret@bucket/one":              "credentials",
		"s3://bucket/one#two":                     "%23",
		"s3://bucket/one?regoin=x":                `"regoin"`,
		"s3://bucket/one?region=x&region=y":       "2 times",
		"s3://bucket/one?path_style=perhaps":      "true or false",
		"s3://bucket/one?endpoint=localhost:8000": "http://",
		"s3://bucket?region=eu-central-1":         "1 to 1024",
		"s3:///one?region=eu-central-1":           "bucket",
		"s3:bucket/one":                           "s3://",
		// Parameters that other clients of the store have, and an election does not need.
		"s3://bucket/one?acl=private":             `no parameter "acl"`,
		"s3://bucket/one?storage_class=STANDARD":  `no parameter "storage_class"`,
		"s3://bucket/one?sse_c_key_file=/run/k":   `no parameter "sse_c_key_file"`,
		"s3://bucket/one?tag=team=a":              `no parameter "tag"`,
		"s3://bucket/one?request_payer=requester": `no parameter "request_payer"`,
	})
	_, err := open(t, "s3://bucket/one?profile=nobody&region=here")
	feedtest.Says(t, err, "nobody")
}
