//go:build go1.25

package s3_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

func open(t *testing.T, address string) (*s3.Decider, error) {
	t.Helper()
	return feedtest.Open(t.Context(), s3.Open, address)
}

func openByURL(t *testing.T, endpoint string) {
	stores.AWSAlone(t, "root", "root-secret")
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	at := "?region=us-east-1&path_style=true&endpoint=" + url.QueryEscape(endpoint)
	one, err := open(t, "s3://"+bucket+"/team/one%20%C3%BC"+at+"&verify=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	if e, err := s3.NewDecider(client, bucket, "team/one ü", nil).ReadCurrent(t.Context()); err != nil || e.LeaderID != "a" {
		t.Errorf("ReadCurrent of the same = %+v, %v", e, err)
	}
	if _, err := open(t, "s3://no-such-bucket/one"+at+"&verify=true"); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("verified in a bucket that does not exist: %v, want an error that wraps ErrPermanent", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	feedtest.OpenRefuses(t, s3.Open, map[string]string{
		"gs://bucket/one":                         "scheme",
		"s3://key:s3cret@bucket/one":              "credentials",
		"s3://bucket/one#two":                     "%23",
		"s3://bucket/one?regoin=x":                `"regoin"`,
		"s3://bucket/one?region=x&region=y":       "2 times",
		"s3://bucket/one?path_style=perhaps":      "true or false",
		"s3://bucket/one?endpoint=localhost:8000": "http://",
		"s3://bucket?region=eu-central-1":         "1 to 1024",
		"s3:///one?region=eu-central-1":           "bucket",
		"s3:bucket/one":                           "s3://",
		// Parameters that other clients of the store have, and an election does not need.
		"s3://bucket/one?acl=private":             `no parameter "acl"`,
		"s3://bucket/one?storage_class=STANDARD":  `no parameter "storage_class"`,
		"s3://bucket/one?sse_c_key_file=/run/k":   `no parameter "sse_c_key_file"`,
		"s3://bucket/one?tag=team=a":              `no parameter "tag"`,
		"s3://bucket/one?request_payer=requester": `no parameter "request_payer"`,
	})
	_, err := open(t, "s3://bucket/one?profile=nobody&region=here")
	feedtest.Says(t, err, "nobody")
}

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

// What the options ask for is in each request that can have it.
func TestOptionsOfRequests(t *testing.T) {
	sent := map[string]http.Header{}
	var mu sync.Mutex
	client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		mu.Lock()
		sent[r.Method] = r.Header.Clone()
		mu.Unlock()
		server.ServeHTTP(w, r)
	})
	d := s3.NewDecider(client, "elections", "one", &s3.Options{
		ExpectedBucketOwner: "123456789012", Metadata: map[string]string{"team": "a b"},
	})
	if err := d.VerifyConditionalWrites(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		if got := sent[method].Get("X-Amz-Expected-Bucket-Owner"); got != "123456789012" {
			t.Errorf("%s wants the bucket of %q", method, got)
		}
	}
	if got := sent[http.MethodPut].Get("X-Amz-Meta-Team"); got != "a b" {
		t.Errorf("the metadata is %q", got)
	}
}

// What no server would take is refused by each call, and before anything is sent.
func TestOptionsRefused(t *testing.T) {
	for says, o := range map[string]s3.Options{
		"letters, digits": {Metadata: map[string]string{"my team": "a"}},
		"printable ASCII": {Metadata: map[string]string{"team": "ä"}},
		"2048":            {Metadata: map[string]string{"team": strings.Repeat("a", 2048)}},
		"no blank":        {Metadata: map[string]string{"team": "a "}},
	} {
		client := like(t, func(http.ResponseWriter, *http.Request, http.Handler) { t.Errorf("%s: a request was sent", says) })
		_, err := s3.NewDecider(client, "elections", "one", &o).ReadCurrent(t.Context())
		feedtest.Permanent(t, err, says)
	}
	_, err := s3.NewDecider(like(t, nil), "arn:aws:s3::123456789012:accesspoint/m1.mrap", "one", nil).ReadCurrent(t.Context())
	feedtest.Permanent(t, err, "multi-region")
}

const arn = "arn:aws:s3:eu-central-1:123456789012:accesspoint/web"

// An access point is named by its ARN, also in a URL, which says the region as well.
func TestAccessPoint(t *testing.T) {
	var sent *http.Request
	client := newClient(t, "https://s3.eu-central-1.amazonaws.com", func(o *awss3.Options) {
		o.Region, o.UsePathStyle, o.BaseEndpoint = "eu-central-1", false, nil
		o.HTTPClient = &http.Client{Transport: &httpfault.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r
			failWith(w, http.StatusNotFound, "NoSuchKey")
		})}}
	})
	if e, err := s3.NewDecider(client, arn, "team/one", nil).ReadCurrent(t.Context()); err != nil || e.ElectionNumber != 0 {
		t.Fatal(e, err)
	}
	if host := sent.URL.Host; host != "web-123456789012.s3-accesspoint.eu-central-1.amazonaws.com" || sent.URL.Path != "/team/one" {
		t.Errorf("host %s, path %s", host, sent.URL.Path)
	}
	stores.AWSAlone(t, "root", "root-secret")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	for region, want := range map[string]string{"": "eu-central-1", "&region=eu-west-1": "eu-west-1"} {
		d, err := open(t, "s3:///team/one?bucket="+arn+region)
		if err != nil || d.String() != fmt.Sprintf("S3 bucket %q, object \"team/one\" in %s", arn, want) {
			t.Errorf("the place is %v (%v), want the ARN in %s", d, err, want)
		}
	}
}

// The requests have the settings of the URL.
func TestOpenAsks(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	var sent *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r
		failWith(w, http.StatusNotFound, "NoSuchKey")
	}))
	defer server.Close()
	d, err := open(t, "s3://elections/one?region=here&path_style=true&bucket_owner=123456789012&metadata=team=a&sse=aws:kms&endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = d.WriteEntry(t.Context(), &first)
	for name, want := range map[string]string{"Expected-Bucket-Owner": "123456789012", "Meta-Team": "a", "Server-Side-Encryption": "aws:kms"} {
		if got := sent.Header.Get("X-Amz-" + name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for query, says := range map[string]string{
		"/one?bucket=web":                       "an ARN such as arn:aws:s3:",
		"/one?bucket=arn:aws:dynamodb:eu-1:1:x": "an ARN such as arn:aws:s3:",
		"other/one?bucket=" + arn:               "leave one of them out",
		"b/one?metadata=team":                   "key=value",
	} {
		_, err := open(t, "s3://"+query)
		if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a permanent error that says %q", query, err, says)
		}
	}
}

// Only the answers of a real bucket say that a rule deletes the record, that it is a copy, or that
// it is copied.
func TestDurability(t *testing.T) {
	for header, says := range map[string]string{
		"": "",
		`X-Amz-Expiration: expiry-date="Fri, 27 Nov 2026 00:00:00 GMT", rule-id="all"`: "lifecycle rule deletes",
		"X-Amz-Replication-Status: REPLICA":                                            "it is a copy",
		"X-Amz-Replication-Status: PENDING":                                            "is replicated to another",
		"X-Amz-Replication-Status: COMPLETED":                                          "is replicated to another",
	} {
		d := s3.NewDecider(like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if name, value, is := strings.Cut(header, ": "); is && r.Method == http.MethodGet {
				w.Header().Set(name, value)
			}
			server.ServeHTTP(w, r)
		}), "elections", "one", nil)
		if _, err := d.Durability(t.Context()); err == nil || !strings.Contains(err.Error(), "no record yet") {
			t.Errorf("%s: before anybody has led: %v", header, err)
		}
		if _, err := d.WriteEntry(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		warnings, err := d.Durability(t.Context())
		if err != nil || (says == "") != (len(warnings) == 0) || says != "" && !strings.Contains(warnings[0].String(), says) {
			t.Errorf("%s: %v, %v, want %q", header, warnings, err, says)
		}
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.LeaderID != first.LeaderID {
			t.Errorf("%s: read %+v, %v", header, e, err)
		}
	}
}

// directory is a directory bucket, as Amazon documents them: each request but CreateSession has a
// session's token, which lasts for some minutes; ETags are random; and a bucket that was not used
// for long answers 503 for a while.
type directory struct {
	server http.Handler

	mu       sync.Mutex
	sleepy   int               // how many answers are 503 yet
	sessions []string          // the tokens that count
	etags    map[string]string // by those of the server
}

const bucketOfDirectory = "elections--use1-az4--x-s3"

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch _, session := r.URL.Query()["session"]; {
	case !strings.HasPrefix(r.Host+r.URL.Host, bucketOfDirectory+".s3express-use1-az4.us-east-1.amazonaws.com"):
		failWith(w, http.StatusBadRequest, "IncorrectEndpoint")
		return
	case session:
		token := rand.Text()
		d.sessions = append(d.sessions, token)
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, "<CreateSessionResult><Credentials><SessionToken>%s</SessionToken><SecretAccessKey>s</SecretAccessKey><AccessKeyId>k</AccessKeyId><Expiration>%s</Expiration></Credentials></CreateSessionResult>",
			token, time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339))
		return
	case !slices.Contains(d.sessions, r.Header.Get("X-Amz-S3session-Token")):
		failWith(w, http.StatusForbidden, "AccessDenied")
		return
	}
	if d.sleepy > 0 {
		d.sleepy--
		failWith(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	for own, random := range d.etags {
		if r.Header.Get("If-Match") == random {
			r.Header.Set("If-Match", own)
		}
	}
	r.URL.Path = "/elections" + r.URL.Path // as the server here has it
	a := httptest.NewRecorder()
	d.server.ServeHTTP(a, r)
	if own := a.Header().Get("ETag"); own != "" {
		if d.etags[own] == "" {
			d.etags[own] = `"` + strings.ToLower(rand.Text()) + `"`
		}
		a.Header().Set("ETag", d.etags[own])
	}
	answer(w, a)
}

// Elections in a directory bucket, by the client's own sessions and endpoints.
func TestDirectoryBucket(t *testing.T) {
	var elections atomic.Int64
	newBucket := func(t testing.TB) (*directory, *awss3.Client) {
		d := &directory{server: fakes3.Handler(), etags: map[string]string{}}
		createBucket(t, d.server, "elections")
		return d, awss3.New(awss3.Options{
			Region: "us-east-1", Credentials: as("root"), HTTPClient: &http.Client{Transport: &httpfault.Transport{Handler: d}},
			RequestChecksumCalculation: aws.RequestChecksumCalculationWhenSupported,
		})
	}
	bucket, client := newBucket(t)
	d := s3.NewDecider(client, bucketOfDirectory, "asleep", nil)
	bucket.sleepy = 1
	if _, err := d.WriteEntry(t.Context(), &first); err == nil {
		t.Error("a bucket that is inactive has taken a write")
	}
	token, err := d.WriteEntry(t.Context(), &first)
	if err != nil {
		t.Fatal(err)
	}
	if warnings, err := d.Durability(t.Context()); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Detail, "one zone") {
		t.Errorf("%v, %v", warnings, err)
	}
	bucket.mu.Lock()
	bucket.sessions = nil // as an administrator may end them
	bucket.mu.Unlock()
	next := first
	next.Extension, next.Token = 1, token
	if _, err := d.WriteEntry(t.Context(), &next); err == nil {
		t.Error("a session that was ended has written")
	}
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		_, client := newBucket(t)
		key := string(rune('a' + elections.Add(1)))
		return func() leaderelection.RaceDecider { return s3.NewDecider(client, bucketOfDirectory, key, nil) }
	}, &decidertest.Options{Rounds: 3})
}
