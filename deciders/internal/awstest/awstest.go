// Package awstest is what the tests of the stores of AWS share. Like awsurl, it does not import the SDK.
package awstest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// OpenRefuses fails the test where open does not refuse what no URL of this scheme may be, nor those of
// more, each with its word. The parameter is that of the ARN.
func OpenRefuses[D comparable](t *testing.T, open func(context.Context, *url.URL) (D, error), scheme, parameter string, more map[string]string) {
	t.Helper()
	stores.AWSAlone(t, "key", "secret")
	const arn = "arn:aws:%s:eu-1:123456789012:x"
	at, named := scheme+"://elections/one", scheme+":///one?"+parameter+"="
	all := map[string]string{
		"gs://elections/one":                                  "scheme",
		scheme + "://key:s3cret@elections/one":                "credentials",
		scheme + ":elections/one":                             scheme + "://",
		at + "#two":                                           "%23",
		at + "?regoin=x":                                      `"regoin"`,
		at + "?region=x&region=y":                             "2 times",
		at + "?endpoint=localhost:8000":                       "http://",
		at + "?region=x;y":                                    "semicolon",
		named + "elections":                                   "an ARN such as arn:aws:" + scheme + ":",
		named + fmt.Sprintf(arn, "sqs"):                       "an ARN such as arn:aws:" + scheme + ":",
		at + "?" + parameter + "=" + fmt.Sprintf(arn, scheme): "leave one of them out",
	}
	maps.Copy(all, more)
	feedtest.OpenRefuses(t, open, all)
	_, err := feedtest.Open(t.Context(), open, at+"?profile=nobody&region=here")
	feedtest.Says(t, err, "nobody")
}

// Renewed writes the shared credentials file again when the server does not take the old credentials any
// more, with each of these codes. The next call must have the new ones. The address lacks its endpoint.
func Renewed[D leaderelection.RaceDecider](t *testing.T, open func(context.Context, *url.URL) (D, error), address string, accept http.HandlerFunc, refuse func(w http.ResponseWriter, code string), codes ...string) {
	stores.AWSAlone(t, "", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	renew := func(key string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = s\naws_session_token = t\n", key)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range codes {
		valid := "FIRST"
		renew(valid)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "Credential="+valid+"/") {
				accept(w, r)
			} else {
				refuse(w, code)
			}
		}))
		d, err := feedtest.Open(t.Context(), open, address+"&endpoint="+url.QueryEscape(server.URL))
		if err != nil {
			t.Fatal(err)
		}
		feedtest.Read(t, d)
		valid = "SECOND"
		if _, err := d.ReadCurrent(t.Context()); err == nil {
			t.Fatalf("%s: the old credentials are accepted", code)
		}
		renew(valid)
		if _, err := d.ReadCurrent(t.Context()); err != nil {
			t.Errorf("%s: with the new credentials in the file: %v", code, err)
		}
		server.Close()
	}
}
