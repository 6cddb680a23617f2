package s3_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
)

// alone keeps the environment's configuration out of a test.
func alone(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "root")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "root-secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1") // what the URL says counts more
}

func open(t *testing.T, address string) (*s3.Decider, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return s3.Open(t.Context(), u)
}

func openByURL(t *testing.T, endpoint string) {
	alone(t)
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	at := "?region=us-east-1&path_style=true&endpoint=" + url.QueryEscape(endpoint)
	one, err := open(t, "s3://"+bucket+"/team/one%20%C3%BC"+at+"&storage_class=STANDARD&verify=true")
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
	alone(t)
	for address, says := range map[string]string{
		"gs://bucket/one":                            "scheme",
		"s3://key:secret@bucket/one":                 "credentials",
		"s3://bucket/one#two":                        "%23",
		"s3://bucket/one?regoin=x":                   `"regoin"`,
		"s3://bucket/one?region=x&region=y":          "2 times",
		"s3://bucket/one?path_style=perhaps":         "true or false",
		"s3://bucket/one?endpoint=localhost:8000":    "http://",
		"s3://bucket?region=eu-central-1":            "1 to 1024",
		"s3:///one?region=eu-central-1":              "bucket",
		"s3:bucket/one":                              "s3://",
		"s3://bucket/one?profile=nobody&region=here": "nobody",
	} {
		_, err := open(t, address)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error that says %q", address, err, says)
		} else if !errors.Is(err, leaderelection.ErrPermanent) && says != "nobody" {
			t.Errorf("%s: %v, which does not wrap ErrPermanent", address, err)
		}
	}
}
