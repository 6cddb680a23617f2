package gcs_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func TestMissingBucket(t *testing.T) {
	c := client(t, stores.FakeGCS(t, bucket))
	feedtest.Refuses(t, gcs.NewDecider(c, "no-such-bucket", "one", nil), "gs://no-such-bucket/one", "no such bucket")
}

// What is there and not ours is refused, and left alone.
func TestForeignObject(t *testing.T) {
	c := client(t, stores.FakeGCS(t, bucket))
	for name, content := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			o := c.Bucket(bucket).Object(name)
			put(t, o, content)
			feedtest.Foreign(t, gcs.NewDecider(c, bucket, name, nil), "gs://elections/"+name)
			if left := get(t, o); left != content {
				t.Errorf("it was changed to %q", left)
			}
		})
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	c := client(t, "http://127.0.0.1:1")
	for _, place := range [][2]string{
		{"", "o"}, {"ab", "o"}, {"Elections", "o"}, {"a/b", "o"}, {strings.Repeat("a", 223), "o"},
		{"elections", ""}, {"elections", "a\nb"}, {"elections", "\xff"}, {"elections", strings.Repeat("a", 1025)}, {"elections", ".."},
	} {
		feedtest.Refuses(t, gcs.NewDecider(c, place[0], place[1], nil), "name")
	}
}

// interfaces are what chooses one of the service's two on HTTP, for reads.
var interfaces = [][]option.ClientOption{nil, {storage.WithJSONReads()}}

// answers is a RoundTripper that answers as it is told.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// answering returns a Decider that is always answered so, by either of Google's
// two HTTP interfaces.
func answering(t testing.TB, code int, body string, opts ...option.ClientOption) *gcs.Decider {
	return through(t, func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}, opts...)
}

func through(t testing.TB, a answers, opts ...option.ClientOption) *gcs.Decider {
	t.Helper()
	c, err := storage.NewClient(t.Context(), append(opts, option.WithHTTPClient(&http.Client{Transport: a}))...)
	if err != nil {
		t.Fatal(err)
	}
	return gcs.NewDecider(c, bucket, "one", nil)
}

// jsonError is what an error of the service looks like.
func jsonError(reason string) string {
	return `{"error":{"code":0,"message":"said the service","errors":[{"domain":"global","reason":"` + reason + `","message":"said the service"}]}}`
}

// What something on the way says of itself may pass, and is no empty election.
func TestAnswersOfOthers(t *testing.T) {
	for _, f := range httpfault.OfOthers() {
		for _, opts := range interfaces {
			for _, err := range feedtest.Errors(t, answering(t, f.Status, f.Body, opts...)) {
				feedtest.Passing(t, err)
			}
		}
	}
}

// The SDK throws the connection away with each 404 of the XML interface, which it
// downloads by: an election that is still empty is looked at by the other one.
func TestConnectionsOfAnEmptyElection(t *testing.T) {
	for _, opts := range interfaces {
		var connections atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/o") {
				_, _ = io.WriteString(w, "{}") // a list without objects
				return
			}
			w.WriteHeader(http.StatusNotFound)
			if strings.HasPrefix(r.URL.Path, "/storage/") {
				_, _ = io.WriteString(w, jsonError("notFound"))
			} else {
				_, _ = io.WriteString(w, "<?xml version='1.0'?><Error><Code>NoSuchKey</Code></Error>")
			}
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		s.Start()
		tr := new(http.Transport)
		d := through(t, tr.RoundTrip, append(opts, option.WithEndpoint(s.URL+"/storage/v1/"))...)
		for range 20 {
			feedtest.Reads(t, d, 0)
		}
		if n := connections.Load(); n > 2 {
			t.Errorf("%v: %d connections for 20 looks", opts, n)
		}
		tr.CloseIdleConnections()
		s.Close()
	}
}

// What the service itself says, and no emulator does.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		code      int
		body      string
		permanent bool
		says      string
	}{
		"no permission":   {403, jsonError("forbidden"), true, "storage.objects.get"},
		"retention":       {403, jsonError("retentionPolicyNotMet"), true, "retention"},
		"hold":            {403, jsonError("objectUnderActiveHold"), true, "hold"},
		"expired":         {401, jsonError("authError"), true, "expired"},
		"invalid":         {400, jsonError("invalid"), true, "names and options"},
		"billing":         {403, jsonError("accountDisabled"), true, "accountDisabled"},
		"xml forbidden":   {403, "<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", true, "AccessDenied"},
		"rate limit":      {429, jsonError("rateLimitExceeded"), false, ""},
		"quota":           {403, jsonError("quotaExceeded"), false, ""},
		"daily limit":     {403, jsonError("dailyLimitExceeded"), false, ""},
		"user rate limit": {403, jsonError("userRateLimitExceeded"), false, ""},
		"unavailable":     {503, jsonError("backendError"), false, ""},
		"proxy":           {502, "<html>bad gateway", false, ""},
		"timeout":         {408, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, opts := range interfaces {
				d := answering(t, c.code, c.body, opts...)
				for _, err := range feedtest.Errors(t, d) {
					if c.permanent {
						feedtest.Permanent(t, err, c.says, "gs://elections/one")
					} else {
						feedtest.Passing(t, err)
					}
				}
			}
		})
	}
	d := answering(t, 412, strings.Replace(jsonError("conditionNotMet"), "said the service", "'us-east1' violates constraint 'constraints/gcp.resourceLocations'", 1))
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil), "constraint", "organisation")
	err := feedtest.WriteError(t, answering(t, 412, jsonError("conditionNotMet")), 1, nil)
	var lost *leaderelection.LostRaceError
	if !errors.As(err, &lost) || lost.Place != "gs://elections/one" {
		t.Errorf("412: %v", err)
	}
}

// Errors that come from elsewhere than a storage server's answer.
func TestOtherErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err             error
		permanent, lost bool
	}{
		"token refused":       {&oauth2.RetrieveError{Response: &http.Response{StatusCode: 400}, ErrorCode: "invalid_grant"}, true, false},
		"token server down":   {&oauth2.RetrieveError{Response: &http.Response{StatusCode: 503}}, false, false},
		"login refused":       {&auth.Error{Response: &http.Response{StatusCode: 401}}, true, false},
		"login unreachable":   {&auth.Error{Err: io.ErrUnexpectedEOF}, false, false},
		"no network":          {io.ErrUnexpectedEOF, false, false},
		"gRPC precondition":   {status.Error(codes.FailedPrecondition, "x"), false, true},
		"gRPC no permission":  {status.Error(codes.PermissionDenied, "x"), true, false},
		"gRPC no credentials": {status.Error(codes.Unauthenticated, "x"), true, false},
		"gRPC no bucket":      {status.Error(codes.NotFound, "x"), true, false},
		"gRPC invalid":        {status.Error(codes.InvalidArgument, "x"), true, false},
		"gRPC busy":           {status.Error(codes.ResourceExhausted, "x"), false, false},
		"gRPC from a proxy":   {status.Error(codes.Unimplemented, "unexpected HTTP status code received from server: 404 (Not Found)"), false, false},
		"gRPC unavailable":    {status.Error(codes.Unavailable, "x"), false, false},
	} {
		d := through(t, func(*http.Request) (*http.Response, error) { return nil, c.err })
		err := feedtest.WriteError(t, d, 1, nil)
		if err == nil || errors.Is(err, leaderelection.ErrPermanent) != c.permanent || errors.Is(err, leaderelection.ErrLostRace) != c.lost || !errors.Is(err, c.err) {
			t.Errorf("%s: %v; want permanent: %v, lost: %v", name, err, c.permanent, c.lost)
		}
	}
}

// A candidate that may not list objects still finds an empty election.
func TestEmptyElectionWithoutListing(t *testing.T) {
	requests := 0
	d := through(t, func(r *http.Request) (*http.Response, error) {
		requests++
		code, reason := 404, "notFound"
		if strings.HasSuffix(r.URL.Path, "/o") {
			code, reason = 403, "forbidden"
		}
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(jsonError(reason))), Request: r}, nil
	})
	for range 3 {
		feedtest.Reads(t, d, 0)
	}
	if requests != 4 {
		t.Errorf("%d requests for three looks, want one each and one more for the first", requests)
	}
}

// A pause that the service, or something on the way, asks for is handed on.
func TestRetryAfter(t *testing.T) {
	for code, reason := range map[int]string{429: "rateLimitExceeded", 503: "backendError"} {
		for _, opts := range interfaces {
			d := through(t, func(r *http.Request) (*http.Response, error) {
				h := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}}
				return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(jsonError(reason))), Request: r}, nil
			}, opts...)
			for _, err := range feedtest.Errors(t, d) {
				feedtest.Passing(t, err)
				feedtest.Pauses(t, err, 7*time.Second)
			}
		}
	}
}

// Only the settings of a real bucket say that a rule deletes the record, that it cannot be replaced, or
// where it is kept. They are as the JSON API documents the resource Bucket.
func TestDurability(t *testing.T) {
	rule := func(condition string) string {
		return `"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": ` + condition + `}]}`
	}
	for settings, words := range map[string][]string{
		`"locationType": "region"`:                                                                nil,
		`"locationType": "multi-region", "location": "EU"`:                                        {"multi-region EU"},
		`"locationType": "dual-region", "location": "NAM4", "rpo": "ASYNC_TURBO"`:                 {"dual-region NAM4"},
		`"locationType": "zone", "location": "us-east1-b"`:                                        {"one zone"},
		`"retentionPolicy": {"retentionPeriod": "3600", "effectiveTime": "2026-01-01T00:00:00Z"}`: {"retention policy keeps the record from being replaced for 1h0m0s"},
		`"defaultEventBasedHold": true`:                                                           {"event-based hold"},
		`"softDeletePolicy": {"retentionDurationSeconds": "604800"}`:                              nil,
		`"versioning": {"enabled": true}`:                                                         nil,
		rule(`{"age": 30}`):                                                                       {"nobody leads for 30 days"},
		rule(`{"age": 30, "matchesPrefix": ["logs/", "elections/"]}`):                             {"nobody leads for 30 days"},
		rule(`{"age": 30, "matchesPrefix": ["logs/"]}`):                                           nil,
		rule(`{"age": 30, "matchesSuffix": [".tmp"]}`):                                            nil,
		rule(`{"age": 30, "isLive": false}`):                                                      nil,
		rule(`{"age": 30, "isLive": true}`):                                                       {"nobody leads for 30 days"},
		rule(`{"createdBefore": "2027-01-01"}`):                                                   {"nobody leads after 2027-01-01"},
		rule(`{"numNewerVersions": 3}`):                                                           nil,
		rule(`{"daysSinceCustomTime": 3}`):                                                        nil,
		`"lifecycle": {"rule": [{"action": {"type": "SetStorageClass", "storageClass": "ARCHIVE"}, "condition": {"age": 1}}]}`: nil,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/storage/v1/b/"+bucket {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind": "storage#bucket", "name": %q, "storageClass": "STANDARD", %s}`, bucket, settings)
		}))
		feedtest.Examines(t, gcs.NewDecider(client(t, s.URL), bucket, "elections/one", nil), words...)
		s.Close()
	}
}

// Without the permission to read the settings, the error names it.
func TestDurabilityWithoutPermission(t *testing.T) {
	warnings, err := answering(t, http.StatusForbidden, jsonError("forbidden")).Durability(t.Context())
	if len(warnings) > 0 || err == nil || !strings.Contains(err.Error(), "storage.buckets.get") {
		t.Errorf("%v, %v", warnings, err)
	}
}

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
		status, body := http.StatusNotFound, jsonError("notFound") // the object
		switch {
		case r.URL.Path == valid:
			status, body = http.StatusOK, `{"access_token":"`+valid+`","token_type":"Bearer","expires_in":3600}`
		case r.URL.Path == "/first" || r.URL.Path == "/second":
			status, body = http.StatusBadRequest, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`
		case r.Header.Get("Authorization") != "Bearer "+valid:
			status, body = http.StatusUnauthorized, jsonError("authError")
		case strings.HasSuffix(r.URL.Path, "/o"): // the bucket is there
			status, body = http.StatusOK, `{"kind":"storage#objects"}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
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
		"gs://elections/one?bucket=x", "gs://elections/one?kms_key=a&kms_key=b",
		"gs://elections/one?anonymous=maybe", "gs://elections/one?endpoint=here", "gs://elections/one?%zz", "gs://elections/one#here",
	} {
		_, err := feedtest.Open(t.Context(), gcs.Open, address)
		feedtest.Permanent(t, err)
	}
	// Parameters that other clients of the store have, and an election does not need.
	for _, name := range []string{"acl", "predefined_acl", "content_type", "encryption_key_file", "storage_class", "user_project"} {
		_, err := feedtest.Open(t.Context(), gcs.Open, "gs://elections/one?"+name+"=x")
		feedtest.Permanent(t, err, `no parameter "`+name+`"`)
	}
}

// What the options say is what is written.
func TestOptionsAreWritten(t *testing.T) {
	for address, want := range map[string][]string{
		"?":           {`{"bucket":"elections","cacheControl":"no-store","contentType":"application/json","crc32c":"`},
		"?kms_key=k&": {"kmsKeyName=k"},
	} {
		got := ""
		d := feedtest.Opened(t, gcs.Open, "gs://elections/one"+address+"anonymous=true&endpoint="+front(t, func(r *httputil.ProxyRequest) {
			if r.In.Method == http.MethodPost && got == "" { // what follows only tries the server
				body, _ := io.ReadAll(r.In.Body)
				r.Out.Body = io.NopCloser(bytes.NewReader(body))
				got = r.In.URL.RawQuery + string(body)
			}
		}))
		feedtest.Write(t, d, 1, nil)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: written %s\nwant %s", address, got, w)
			}
		}
	}
}
