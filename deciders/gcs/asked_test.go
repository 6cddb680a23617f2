package gcs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

var customerKey = bytes.Repeat([]byte{7}, 32)

// keyed refuses, as Google does, what is asked about an object without this key, and
// hands on the rest.
func keyed(key []byte, asked *atomic.Int64) answers {
	sum := sha256.Sum256(key)
	encode := base64.StdEncoding.EncodeToString
	return func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/o") && r.Method == http.MethodGet {
			return http.DefaultTransport.RoundTrip(r) // a listing
		}
		asked.Add(1)
		h := r.Header
		if h.Get("X-Goog-Encryption-Algorithm") != "AES256" || h.Get("X-Goog-Encryption-Key") != encode(key) || h.Get("X-Goog-Encryption-Key-Sha256") != encode(sum[:]) {
			body := jsonError("customerEncryptionKeyIsIncorrect")
			return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		}
		return http.DefaultTransport.RoundTrip(r)
	}
}

// An election under a key of the customer's, and what those see who have another or none.
func TestEncryptionKey(t *testing.T) {
	server := stores.FakeGCS(t, bucket)
	var asked atomic.Int64
	over := func(t testing.TB, key []byte) leaderelection.RaceDecider {
		c := client(t, server, option.WithHTTPClient(&http.Client{Transport: keyed(customerKey, &asked)}))
		return gcs.NewDecider(c, bucket, "keyed", &gcs.Options{EncryptionKey: key})
	}
	d := over(t, customerKey)
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{ElectionNumber: 1, LeaderID: "a"}); err != nil || asked.Load() == 0 {
		t.Fatal(err, asked.Load())
	}
	e, err := over(t, customerKey).ReadCurrent(t.Context())
	if err != nil || e.LeaderID != "a" {
		t.Fatal(e, err)
	}
	e.Extension++
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Error(err)
	}
	if _, err := d.WriteEntry(t.Context(), e); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("writing over another version: %v", err)
	}
	for name, key := range map[string][]byte{"none": nil, "another": bytes.Repeat([]byte{8}, 32)} {
		_, err := over(t, key).ReadCurrent(t.Context())
		if hidesKey(t, err); err == nil || !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), "encryption_key_file") {
			t.Errorf("reading with %s: %v, want a permanent error that says what to do", name, err)
		}
	}
}

// hidesKey fails the test if an error shows a key in any form.
func hidesKey(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), string(customerKey[:16])) || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(customerKey)[:20])) {
		t.Errorf("the error shows the key: %v", err)
	}
}

// What the service would never take is refused by each call.
func TestOptionsRefused(t *testing.T) {
	for says, o := range map[string]gcs.Options{
		"has 16 bytes":    {EncryptionKey: customerKey[:16]},
		"two ways":        {EncryptionKey: customerKey, KMSKeyName: "k"},
		"one of STANDARD": {StorageClass: "standard"},
	} {
		_, err := gcs.NewDecider(client(t, "http://127.0.0.1:1"), bucket, "one", &o).ReadCurrent(t.Context())
		hidesKey(t, err)
		feedtest.Permanent(t, err, says)
	}
}

// What a URL asks for is in the requests, with the key of a file.
func TestOpenAsks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	var body, key string
	server := httptest.NewServer(once(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, key = string(b), r.Header.Get("X-Goog-Encryption-Key")
		_, _ = io.WriteString(w, inserted(r, b))
	}))
	defer server.Close()
	open := func(parameters string) (*gcs.Decider, error) {
		u, err := url.Parse("gs://elections/one?anonymous=true&" + parameters)
		if err != nil {
			t.Fatal(err)
		}
		return gcs.Open(t.Context(), u)
	}
	for _, data := range []string{string(customerKey), base64.StdEncoding.EncodeToString(customerKey) + "\n"} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := open("storage_class=STANDARD&encryption_key_file=" + file + "&endpoint=" + server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{}); err != nil || !strings.Contains(body, `"storageClass":"STANDARD"`) || key != base64.StdEncoding.EncodeToString(customerKey) {
			t.Errorf("%v: written %s with the key %s", err, body, key)
		}
	}
	for parameters, says := range map[string]string{
		"storage_class=cold": "one of STANDARD",
		"encryption_key_file=" + file + "&endpoint=http://storage.example": "use https",
		"encryption_key_file=/no/such/file":                                "no such file",
	} {
		_, err := open(parameters)
		hidesKey(t, err)
		feedtest.Permanent(t, err, says)
	}
	if err := os.WriteFile(file, []byte("00112233445566778899"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := open("encryption_key_file=" + file)
	if feedtest.Permanent(t, err, "32 bytes"); strings.Contains(err.Error(), "00112233") {
		t.Errorf("the error shows the key: %v", err)
	}
}
