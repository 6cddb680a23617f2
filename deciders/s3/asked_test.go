//go:build go1.25

package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores"
	"github.com/c8e606e4/leaderelection/internal/stores/fakes3"
)

const customer = "X-Amz-Server-Side-Encryption-Customer-"

var customerKey = bytes.Repeat([]byte{7}, 32)

// withCustomerKeys keeps objects as Amazon does under SSE-C: it answers with algorithm and
// checksum of the key, its ETags are no MD5s, and what was written with a key cannot be
// read without it.
func withCustomerKeys() quirk {
	var wrote atomic.Value
	wrote.Store("")
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		key, err := base64.StdEncoding.DecodeString(r.Header.Get(customer + "Key"))
		sum := md5.Sum(key)
		said := base64.StdEncoding.EncodeToString(sum[:])
		object := strings.Count(r.URL.Path, "/") > 1 && r.Method != http.MethodDelete
		switch {
		case !object:
			server.ServeHTTP(w, r)
			return
		case r.Header.Get(customer+"Algorithm") == "":
			failWith(w, http.StatusBadRequest, "InvalidRequest")
			return
		case err != nil || len(key) != 32 || r.Header.Get(customer+"Key-Md5") != said:
			failWith(w, http.StatusBadRequest, "InvalidArgument")
			return
		case r.Method == http.MethodPut:
			wrote.Store(said)
		case wrote.Load() != "" && wrote.Load() != said:
			failWith(w, http.StatusForbidden, "AccessDenied")
			return
		}
		w.Header().Set(customer+"Algorithm", "AES256")
		w.Header().Set(customer+"Key-Md5", said)
		rotated(w, r, server)
	}
}

// An election under a key of the customer's, and what those see who have another or none.
func TestCustomerKey(t *testing.T) {
	o := s3.Options{SSECustomerKey: customerKey}
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		client := like(t, withCustomerKeys())
		return func() leaderelection.RaceDecider { return s3.NewDecider(client, "elections", "one", &o) }
	}, &decidertest.Options{Rounds: 5})
	client := like(t, withCustomerKeys())
	d := s3.NewDecider(client, "elections", "one", &o)
	if err := d.VerifyConditionalWrites(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := d.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	for _, key := range map[string][]byte{"none": nil, "another": bytes.Repeat([]byte{8}, 32)} {
		_, err := s3.NewDecider(client, "elections", "one", &s3.Options{SSECustomerKey: key}).ReadCurrent(t.Context())
		hidesKey(t, err)
		feedtest.Permanent(t, err)
	}
	// One that takes no notice of the key keeps the record in the clear.
	deaf := s3.NewDecider(like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		for _, name := range []string{"Algorithm", "Key", "Key-Md5"} {
			r.Header.Del(customer + name)
		}
		server.ServeHTTP(w, r)
	}), "elections", "one", &o)
	_, err := deaf.WriteEntry(t.Context(), &first)
	if hidesKey(t, err); err == nil || !strings.Contains(err.Error(), "SSE-C") {
		t.Errorf("a server that knows no SSE-C: %v", err)
	}
	if _, err = deaf.ReadCurrent(t.Context()); err == nil || !strings.Contains(err.Error(), "SSE-C") {
		t.Errorf("reading from a server that knows no SSE-C: %v", err)
	}
}

// hidesKey fails the test if an error shows the key in any form.
func hidesKey(t *testing.T, err error) {
	t.Helper()
	for _, key := range [][]byte{customerKey, customerKey[:16]} {
		if err != nil && (strings.Contains(err.Error(), string(key)) || strings.Contains(err.Error(), strings.TrimRight(base64.StdEncoding.EncodeToString(key), "=")[:20])) {
			t.Errorf("the error shows the key: %v", err)
		}
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
		RequestPayer: "requester", Metadata: map[string]string{"team": "a b"}, Tags: map[string]string{"cost centre": "4/2&x=1"},
	})
	if err := d.VerifyConditionalWrites(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		if got := sent[method].Get("X-Amz-Request-Payer"); got != "requester" {
			t.Errorf("%s is paid by %q", method, got)
		}
	}
	if got := sent[http.MethodPut].Get("X-Amz-Meta-Team"); got != "a b" {
		t.Errorf("the metadata is %q", got)
	}
	if tags, err := url.ParseQuery(sent[http.MethodPut].Get("X-Amz-Tagging")); err != nil || len(tags) != 1 || tags.Get("cost centre") != "4/2&x=1" {
		t.Errorf("the tags are %v, %v", tags, err)
	}
	for name := range sent[http.MethodPut] {
		if strings.HasPrefix(name, customer) {
			t.Errorf("without a key there is %s", name)
		}
	}
}

// What no server would take is refused by each call, and before anything is sent.
func TestOptionsRefused(t *testing.T) {
	tags := map[string]string{}
	for i := range 11 {
		tags[strings.Repeat("x", i+1)] = "y"
	}
	for says, o := range map[string]s3.Options{
		"has 16 bytes":             {SSECustomerKey: customerKey[:16]},
		"has 44 bytes":             {SSECustomerKey: []byte(base64.StdEncoding.EncodeToString(customerKey))},
		"encrypted in one way":     {SSECustomerKey: customerKey, ServerSideEncryption: "aws:kms"},
		`"requester" only`:         {RequestPayer: "owner"},
		"letters, digits":          {Metadata: map[string]string{"my team": "a"}},
		"printable ASCII":          {Metadata: map[string]string{"team": "ä"}},
		"2048":                     {Metadata: map[string]string{"team": strings.Repeat("a", 2048)}},
		"no blank":                 {Metadata: map[string]string{"team": "a "}},
		"S3 takes 10":              {Tags: tags},
		"1 to 128":                 {Tags: map[string]string{"": "a"}},
		"up to 256":                {Tags: map[string]string{"a": strings.Repeat("a", 257)}},
		"begins with aws: is Amaz": {Tags: map[string]string{"AWS:x": "a"}},
	} {
		client := like(t, func(http.ResponseWriter, *http.Request, http.Handler) { t.Errorf("%s: a request was sent", says) })
		_, err := s3.NewDecider(client, "elections", "one", &o).ReadCurrent(t.Context())
		hidesKey(t, err)
		feedtest.Permanent(t, err, says)
	}
	// A key does not go over a network in the clear.
	for endpoint, refused := range map[string]bool{"http://192.0.2.1:9000": true, "http://s3.example": true, "https://s3.example": false, "http://127.0.0.1:1": false, "http://localhost:1": false} {
		client := newClient(t, endpoint, func(o *awss3.Options) {
			o.HTTPClient = &http.Client{Transport: &httpfault.Transport{Handler: fakes3.Handler()}}
		})
		_, err := s3.NewDecider(client, "elections", "one", &s3.Options{SSECustomerKey: customerKey}).ReadCurrent(t.Context())
		if err == nil || strings.Contains(err.Error(), "in the clear: use https") != refused {
			t.Errorf("%s: %v, want it refused for https: %v", endpoint, err, refused)
		}
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

// What a URL asks for is in the requests, with the key of a file.
func TestOpenAsks(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	var sent *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r
		failWith(w, http.StatusNotFound, "NoSuchKey")
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "key")
	for name, data := range map[string]string{"bytes": string(customerKey), "base64": base64.StdEncoding.EncodeToString(customerKey) + "\n"} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := open(t, "s3://elections/one?region=here&path_style=true&request_payer=requester&metadata=team=a&tag=team=b&sse_c_key_file="+file+"&endpoint="+server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.ReadCurrent(t.Context())
		if hidesKey(t, err); sent == nil {
			t.Fatalf("%s: nothing was sent: %v", name, err)
		}
		if got := sent.Header.Get(customer + "Key"); got != base64.StdEncoding.EncodeToString(customerKey) || sent.Header.Get("X-Amz-Request-Payer") != "requester" {
			t.Errorf("%s: the headers are %v", name, sent.Header)
		}
		_, _ = d.WriteEntry(t.Context(), &first)
		if sent.Header.Get("X-Amz-Meta-Team") != "a" || sent.Header.Get("X-Amz-Tagging") != "team=b" {
			t.Errorf("%s: the headers are %v", name, sent.Header)
		}
	}
	if err := os.WriteFile(file, []byte("00112233445566778899"), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, says := range map[string]string{
		"/one?bucket=web":                           "an ARN such as arn:aws:s3:",
		"/one?bucket=arn:aws:dynamodb:eu-1:1:x":     "an ARN such as arn:aws:s3:",
		"other/one?bucket=" + arn:                   "leave one of them out",
		"b/one?request_payer=me":                    "want requester",
		"b/one?tag=team":                            "key=value",
		"b/one?region=x&sse_c_key_file=" + file:     "32 bytes",
		"b/one?region=x&sse_c_key_file=/no/such/it": "no such file",
	} {
		_, err := open(t, "s3://"+query)
		if !errors.Is(err, leaderelection.ErrPermanent) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "00112233") {
			t.Errorf("%s: %v, want a permanent error that says %q", query, err, says)
		}
	}
}
