package s3_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The shared credentials file is written again, and the server does not take the old credentials any
// more: the next call has the new ones, whatever the server says of the old ones.
func TestRenewedCredentials(t *testing.T) {
	stores.AWSAlone(t, "", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	renew := func(key string) {
		text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = s\naws_session_token = t\n", key)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []string{"ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied"} {
		valid := "FIRST"
		renew(valid)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "Credential="+valid+"/") {
				w.Header().Set("Content-Type", "application/xml")
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"))
				return
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>said the server</Message></Error>"))
		}))
		d, err := open(t, "s3://bucket/one?region=x&path_style=true&endpoint="+url.QueryEscape(server.URL))
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
