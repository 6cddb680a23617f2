package dynamo_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
)

// alone keeps the environment's configuration out of a test.
func alone(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1") // what the URL says counts more
}

func open(t *testing.T, address string) (*dynamo.Decider, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return dynamo.Open(t.Context(), u)
}

func openByURL(t *testing.T, endpoint string) {
	alone(t)
	at := "&endpoint=" + url.QueryEscape(endpoint)
	one, err := open(t, "dynamodb://opened/team/one%20%2F%C3%BC?region=eu-central-1&partition_key=PK&sort_key=SK&sort_value=x&create=true"+at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	same := dynamo.NewDecider(newClient(t, endpoint), "opened", "team/one /ü", &dynamo.Options{PartitionKey: "PK", SortKey: "SK", SortValue: "x"})
	if e, err := same.ReadCurrent(t.Context()); err != nil || e.LeaderID != "a" {
		t.Errorf("ReadCurrent of the same = %+v, %v", e, err)
	}
	if _, err := open(t, "dynamodb://opened/two?region=eu-central-1&partition_key=PK&sort_key=SK&verify=true"+at); err != nil {
		t.Errorf("verified: %v", err)
	}
	if _, err := open(t, "dynamodb://opened/two?region=eu-central-1&verify=true"+at); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("verified with the wrong keys: %v, want an error that wraps ErrPermanent", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	alone(t)
	for address, says := range map[string]string{
		"s3://elections/one":                                  "scheme",
		"dynamodb://key:secret@elections/one":                 "credentials",
		"dynamodb://elections/one#two":                        "%23",
		"dynamodb://elections/one?regoin=x":                   `"regoin"`,
		"dynamodb://elections/one?region=x&region=y":          "2 times",
		"dynamodb://elections/one?create=perhaps":             "true or false",
		"dynamodb://elections/one?endpoint=localhost:8000":    "http://",
		"dynamodb://elections?region=eu-central-1":            "1 to 2048",
		"dynamodb:///one?region=eu-central-1":                 "table name",
		"dynamodb://el/one?region=eu-central-1":               "table name",
		"dynamodb://elections/one?region=x&sort_value=y":      "SortKey",
		"dynamodb:elections/one":                              "dynamodb://",
		"dynamodb://elections/one?region=x;y":                 "semicolon",
		"dynamodb://elections/one?profile=nobody&region=here": "nobody",
	} {
		_, err := open(t, address)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error that says %q", address, err, says)
		} else if !errors.Is(err, leaderelection.ErrPermanent) && says != "nobody" {
			t.Errorf("%s: %v, which does not wrap ErrPermanent", address, err)
		}
	}
	if _, err := open(t, "dynamodb://elections/one"); err != nil {
		t.Errorf("without a region, which the first call reports: %v", err)
	}
}
