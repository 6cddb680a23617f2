package dynamo_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/dynamo"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func open(t *testing.T, address string) (*dynamo.Decider, error) {
	t.Helper()
	return feedtest.Open(t.Context(), dynamo.Open, address)
}

func openByURL(t *testing.T, endpoint string) {
	stores.AWSAlone(t, "key", "secret")
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
	stores.AWSAlone(t, "key", "secret")
	feedtest.OpenRefuses(t, dynamo.Open, map[string]string{
		"s3://elections/one":                               "scheme",
		"dynamodb://key:s3cret@elections/one":              "credentials",
		"dynamodb://elections/one#two":                     "%23",
		"dynamodb://elections/one?regoin=x":                `"regoin"`,
		"dynamodb://elections/one?region=x&region=y":       "2 times",
		"dynamodb://elections/one?create=perhaps":          "true or false",
		"dynamodb://elections/one?endpoint=localhost:8000": "http://",
		"dynamodb://elections?region=eu-central-1":         "1 to 2048",
		"dynamodb:///one?region=eu-central-1":              "table name",
		"dynamodb://el/one?region=eu-central-1":            "table name",
		"dynamodb://elections/one?region=x&sort_value=y":   "SortKey",
		"dynamodb:elections/one":                           "dynamodb://",
		"dynamodb://elections/one?region=x;y":              "semicolon",
	})
	_, err := open(t, "dynamodb://elections/one?profile=nobody&region=here")
	feedtest.Says(t, err, "nobody")
	if _, err := open(t, "dynamodb://elections/one"); err != nil {
		t.Errorf("without a region, which the first call reports: %v", err)
	}
}

// A table is named by its ARN, also in a URL, which says the region as well.
func TestTableARN(t *testing.T) {
	stores.AWSAlone(t, "key", "secret")
	const arn = "arn:aws:dynamodb:eu-central-1:123456789012:table/elections"
	var body, signed string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, signed = string(b), r.Header.Get("Authorization")
	}))
	defer server.Close()
	for region, want := range map[string]string{"": "eu-central-1", "&region=eu-west-1": "eu-west-1"} {
		d, err := open(t, "dynamodb:///team/one?table="+arn+region+"&endpoint="+url.QueryEscape(server.URL))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = d.ReadCurrent(t.Context())
		if !strings.Contains(body, `"TableName":"`+arn+`"`) || !strings.Contains(body, `"S":"team/one"`) || !strings.Contains(signed, "/"+want+"/dynamodb/") {
			t.Errorf("%q is sent as %s, signed %s", region, body, signed)
		}
		if !strings.Contains(d.String(), arn) {
			t.Errorf("the place is %s", d)
		}
	}
	for address, says := range map[string]string{
		"dynamodb:///one?table=elections":                                          "an ARN such as arn:aws:dynamodb:",
		"dynamodb:///one?table=arn:aws:s3:eu-central-1:123456789012:table/x":       "an ARN such as arn:aws:dynamodb:",
		"dynamodb://elections/one?table=" + arn:                                    "leave one of them out",
		"dynamodb:///one?table=arn:aws:dynamodb:eu-central-1:123456789012:index/x": "not a table name",
		"dynamodb:///one?region=eu-central-1":                                      "not a table name",
	} {
		if _, err := open(t, address); !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a permanent error that says %q", address, err, says)
		}
	}
}
