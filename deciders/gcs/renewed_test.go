package gcs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// The file of a service account's key is written again, and the old key is deleted: tokens are given for
// the new one alone, and these are accepted.
func TestRenewedKey(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	valid := "/first"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == valid:
			_, _ = w.Write([]byte(`{"access_token":"` + valid + `","token_type":"Bearer","expires_in":3600}`))
		case r.URL.Path == "/first" || r.URL.Path == "/second":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`))
		case r.Header.Get("Authorization") != "Bearer "+valid:
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"code":401,"message":"Invalid Credentials","errors":[{"message":"Invalid Credentials","reason":"authError"}]}}`))
		case strings.HasSuffix(r.URL.Path, "/o"): // the bucket is there
			_, _ = w.Write([]byte(`{"kind":"storage#objects"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":{"code":404,"message":"No such object: bucket/e","errors":[{"message":"No such object: bucket/e","reason":"notFound"}]}}`))
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "key.json")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
	renew := func() {
		text, err := json.Marshal(map[string]string{
			"type": "service_account", "client_email": "me@example.com", "private_key_id": valid, "token_uri": server.URL + valid,
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		})
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	renew()
	d := feedtest.Opened(t, gcs.Open, "gs://bucket/e?endpoint="+url.QueryEscape(server.URL))
	feedtest.Read(t, d)
	valid = "/second"
	feedtest.Denied(t, feedtest.ReadError(t, d), "not accepted")
	renew()
	if _, err := d.ReadCurrent(t.Context()); err != nil {
		t.Errorf("with the new key in the file: %v", err)
	}
}
