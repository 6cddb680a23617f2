package gcs_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

func TestOpenRefuses(t *testing.T) {
	for _, address := range []string{
		"s3://elections/one", "gs://elections", "gs://elections/", "gs:///one", "gs://user@elections/one", "gs://elections:1/one",
		"gs://elections/one?bucket=x", "gs://elections/one?kms_key=a&kms_key=b", "gs://elections/one?metadata=x",
		"gs://elections/one?anonymous=maybe", "gs://elections/one?endpoint=here", "gs://elections/one?%zz", "gs://elections/one#here",
	} {
		_, err := feedtest.Open(t.Context(), gcs.Open, address)
		feedtest.Permanent(t, err)
	}
	// Parameters that other clients of the store have, and an election does not need.
	for _, name := range []string{"acl", "predefined_acl", "encryption_key_file", "storage_class", "user_project"} {
		_, err := feedtest.Open(t.Context(), gcs.Open, "gs://elections/one?"+name+"=x")
		feedtest.Permanent(t, err, `no parameter "`+name+`"`)
	}
}

// What the options say is what is written.
func TestOptionsAreWritten(t *testing.T) {
	for address, want := range map[string]string{
		"gs://elections/one?anonymous=true": `{"bucket":"elections","cacheControl":"no-store","contentType":"application/json","crc32c":"`,
		"gs://elections/one?anonymous=true&kms_key=k&content_type=text/plain&cache_control=private&metadata=team=a%3Db&metadata=x=y": `"bucket":"elections","cacheControl":"private","contentType":"text/plain"`,
	} {
		var got, query string
		d := feedtest.Opened(t, gcs.Open, address+"&endpoint="+url.QueryEscape(receive(t, &got, &query)))
		feedtest.Write(t, d, 1, nil)
		if !strings.Contains(got, want) {
			t.Errorf("%s: written %s\nwant %s", address, got, want)
		}
		if strings.Contains(address, "kms") {
			if !strings.Contains(query, "kmsKeyName=k") {
				t.Errorf("%s: the query %s lacks the key", address, query)
			}
			if !strings.Contains(got, `"metadata":{"team":"a=b","x":"y"}`) {
				t.Errorf("%s: written %s", address, got)
			}
		}
	}
}

// receive starts a server that takes in one write, and returns its URL.
func receive(t testing.TB, body, query *string) string {
	t.Helper()
	s := httptest.NewServer(once(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*body, *query = string(b), r.URL.RawQuery
		_, _ = io.WriteString(w, inserted(r, b))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// once has a request of each three answered, and refuses the two that a decider makes after it to
// see that conditions are honored.
func once(answer http.HandlerFunc) http.Handler {
	var n atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 == 1 {
			answer(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, jsonError("conditionNotMet"))
	})
}

// inserted is how the service describes the object that a request with this body made.
func inserted(r *http.Request, body []byte) string {
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	var content []byte
	for {
		part, err := parts.NextPart()
		if err != nil {
			break
		}
		content, _ = io.ReadAll(part) // the last part
	}
	return fmt.Sprintf(`{"kind":"storage#object","bucket":"elections","name":"one","generation":"2","updated":"2026-11-21T11:24:05.123Z","size":"%d","crc32c":"%s"}`, len(content), sum(content))
}
