package gcs_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
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

// Only the settings of a real bucket say that a rule deletes the record, that it cannot be replaced, or
// where it is kept. They are as the JSON API documents the resource Bucket.
func TestDurability(t *testing.T) {
	rule := func(condition string) string {
		return `"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": ` + condition + `}]}`
	}
	for settings, says := range map[string]string{
		`"locationType": "region"`:                                                                "",
		`"locationType": "multi-region", "location": "EU"`:                                        "multi-region EU",
		`"locationType": "dual-region", "location": "NAM4", "rpo": "ASYNC_TURBO"`:                 "dual-region NAM4",
		`"locationType": "zone", "location": "us-east1-b"`:                                        "one zone",
		`"retentionPolicy": {"retentionPeriod": "3600", "effectiveTime": "2026-01-01T00:00:00Z"}`: "retention policy keeps the record from being replaced for 1h0m0s",
		`"defaultEventBasedHold": true`:                                                           "event-based hold",
		`"softDeletePolicy": {"retentionDurationSeconds": "604800"}`:                              "",
		`"versioning": {"enabled": true}`:                                                         "",
		rule(`{"age": 30}`):                                                                       "nobody leads for 30 days",
		rule(`{"age": 30, "matchesPrefix": ["logs/", "elections/"]}`):                             "nobody leads for 30 days",
		rule(`{"age": 30, "matchesPrefix": ["logs/"]}`):                                           "",
		rule(`{"age": 30, "matchesSuffix": [".tmp"]}`):                                            "",
		rule(`{"age": 30, "isLive": false}`):                                                      "",
		rule(`{"age": 30, "isLive": true}`):                                                       "nobody leads for 30 days",
		rule(`{"createdBefore": "2027-01-01"}`):                                                   "nobody leads after 2027-01-01",
		rule(`{"numNewerVersions": 3}`):                                                           "",
		rule(`{"daysSinceCustomTime": 3}`):                                                        "",
		`"lifecycle": {"rule": [{"action": {"type": "SetStorageClass", "storageClass": "ARCHIVE"}, "condition": {"age": 1}}]}`: "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/storage/v1/b/"+bucket {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind": "storage#bucket", "name": %q, "storageClass": "STANDARD", %s}`, bucket, settings)
		}))
		warnings, err := gcs.NewDecider(client(t, s.URL), bucket, "elections/one", nil).Durability(t.Context())
		s.Close()
		if err != nil || (says == "") != (len(warnings) == 0) || says != "" && !strings.Contains(warnings[0].String(), says) {
			t.Errorf("%s: %v, %v, want %q", settings, warnings, err, says)
		}
	}
}

// Without the permission to read the settings, the error names it.
func TestDurabilityWithoutPermission(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, jsonError("forbidden"))
	}))
	defer s.Close()
	warnings, err := gcs.NewDecider(client(t, s.URL), bucket, "one", nil).Durability(t.Context())
	if len(warnings) > 0 || err == nil || !strings.Contains(err.Error(), "storage.buckets.get") {
		t.Errorf("%v, %v", warnings, err)
	}
}
