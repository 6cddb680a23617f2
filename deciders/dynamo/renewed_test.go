package dynamo_test

import (
	"fmt"
	"hash/crc32"
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
	for _, code := range []string{"ExpiredTokenException", "UnrecognizedClientException", "InvalidSignatureException"} {
		valid := "FIRST"
		renew(valid)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Authorization"), "Credential="+valid+"/") {
				w.Header().Set("X-Amzn-Requestid", "0")
				w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE([]byte("{}"))))
				_, _ = w.Write([]byte("{}"))
				return
			}
			w.Header().Set("X-Amzn-Requestid", "0")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"__type":"com.amazon.coral.service#` + code + `","message":"said the server"}`))
		}))
		d, err := open(t, "dynamodb://elections/one?region=x&endpoint="+url.QueryEscape(server.URL))
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
