//go:build go1.25

package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/awstest"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// first is a record.
var first = leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i"}

// The delete marker of a versioned bucket shows that there was an object.
func TestDeleteMarker(t *testing.T) {
	for _, marked := range []bool{false, true} {
		d := s3.NewDecider(like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if _, there := exists(r, server); marked && !there && r.Method == http.MethodGet {
				w.Header().Set("X-Amz-Delete-Marker", "true")
			}
			server.ServeHTTP(w, r)
		}), "elections", "one", nil)
		e, err := d.ReadCurrent(t.Context())
		if err != nil || !e.Vacant() || e.ElectionNumber != leaderelection.NoElections || e.Emptied != marked {
			t.Errorf("%+v, %v; want Emptied %v", e, err, marked)
		}
		feedtest.Write(t, d, 1, nil)
		if e, err := d.ReadCurrent(t.Context()); err != nil || e.Emptied || e.LeaderID != "a" {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

func objectThatIsNotOurs(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	bucket := newBucket(t, client)
	for name, content := range feedtest.NoRecords() {
		t.Run(name, func(t *testing.T) {
			if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &bucket, Key: &name, Body: strings.NewReader(content)}); err != nil {
				t.Fatal(err)
			}
			feedtest.Foreign(t, s3.NewDecider(client, bucket, name, nil), bucket, name)
			if got := contentOf(t, client, bucket, name); got != content {
				t.Errorf("the object is now %q", got)
			}
		})
	}
}

// A hand-edited record that is whole is a record.
func editedByHand(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	bucket, key := newBucket(t, client), "edited"
	d := s3.NewDecider(client, bucket, key, nil)
	old := feedtest.Write(t, d, 1, nil)
	edited := strings.Replace(contentOf(t, client, bucket, key), `"leader_id":"a"`, `"leader_id": "b"`, 1)
	if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(edited)}); err != nil {
		t.Fatal(err)
	}
	feedtest.Lost(t, feedtest.WriteError(t, d, 1, old))
	if e, err := d.ReadCurrent(t.Context()); err != nil || e.LeaderID != "b" {
		t.Errorf("ReadCurrent = %+v, %v", e, err)
	}
}

// Whoever deletes the record loses the count; a leader must not take its return
// for its own.
func deleted(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	bucket, key := newBucket(t, client), "deleted"
	d := s3.NewDecider(client, bucket, key, nil)
	token := feedtest.Write(t, d, 1, nil)
	if _, err := client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	feedtest.Lost(t, feedtest.WriteError(t, d, 1, token))
	feedtest.Reads(t, d, 0)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
}

func contentOf(t *testing.T, client *awss3.Client, bucket, key string) string {
	t.Helper()
	out, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func wrongPlace(t *testing.T, endpoint string) {
	client := newClient(t, endpoint)
	t.Run("NoSuchBucket", func(t *testing.T) {
		d := s3.NewDecider(client, "no-such-bucket", "one", nil)
		feedtest.Refuses(t, d, `"no-such-bucket"`, `"one"`, endpoint, "create it")
		feedtest.EndsCampaign(t, d)
	})
	t.Run("Names", func(t *testing.T) {
		feedtest.Refuses(t, s3.NewDecider(client, "", "one", nil), "bucket")
		feedtest.Refuses(t, s3.NewDecider(client, "b", "", nil), "1 to 1024")
		feedtest.Refuses(t, s3.NewDecider(client, "b", strings.Repeat("k", 1025), nil), "1025 bytes")
	})
	feedtest.Refuses(t, s3.NewDecider(newClient(t, "", func(o *awss3.Options) { o.BaseEndpoint, o.Region = nil, "" }), "bucket", "one", nil), "AWS_REGION")
}

func wrongCredentials(t *testing.T, endpoint string) {
	bucket := newBucket(t, newClient(t, endpoint))
	with := func(id string, change ...func(*awss3.Options)) leaderelection.RaceDecider {
		client := newClient(t, endpoint, append(change, func(o *awss3.Options) { o.Credentials = as(id) })...)
		return s3.NewDecider(client, bucket, "one", nil)
	}
	feedtest.Refuses(t, with("guest"), bucket, "s3:PutObject")
	feedtest.Refuses(t, with("nobody"), "credentials")
	feedtest.Refuses(t, with("root", func(o *awss3.Options) { o.Region = "eu-central-1" }), "region")
	feedtest.EndsCampaign(t, with("guest"))
	feedtest.Reads(t, s3.NewDecider(newClient(t, endpoint), bucket, "one", nil), 0) // nothing was written
}

// What the service answers, whatever the emulators do.
func TestAnswers(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		is     func(testing.TB, error, ...string)
		advice string
	}{
		"AccessDenied":                       {403, feedtest.Denied, "s3:ListBucket"},
		"InvalidAccessKeyId":                 {403, feedtest.Denied, "credentials"},
		"SignatureDoesNotMatch":              {403, feedtest.Permanent, "secret"},
		"ExpiredToken":                       {400, feedtest.Denied, "expired"},
		"InvalidToken":                       {400, feedtest.Denied, "credentials"},
		"RequestTimeTooSkewed":               {403, feedtest.Passing, "clock"},
		"PermanentRedirect":                  {301, feedtest.Permanent, "region"},
		"AuthorizationHeaderMalformed":       {400, feedtest.Permanent, "region"},
		"IllegalLocationConstraintException": {400, feedtest.Permanent, "region"},
		"NoSuchBucket":                       {404, feedtest.Permanent, "create it"},
		"InvalidBucketName":                  {400, feedtest.Permanent, "name"},
		"KeyTooLongError":                    {400, feedtest.Permanent, "name"},
		"NotImplemented":                     {501, feedtest.Permanent, "conditional writes"},
		"InvalidObjectState":                 {403, feedtest.Permanent, "archived"},
		"KMS.DisabledException":              {400, feedtest.Permanent, "KMS"},
		"KMS.NotFoundException":              {400, feedtest.Permanent, "KMS"},
		"KMS.KMSInvalidStateException":       {400, feedtest.Permanent, "KMS"},
		"KMS.ThrottlingException":            {400, feedtest.Passing, ""},
		"KMS.InternalException":              {500, feedtest.Passing, ""},
		"KMS.DependencyTimeoutException":     {503, feedtest.Passing, ""},
		"AccessControlListNotSupported":      {400, feedtest.Permanent, "Options"},
		"MalformedACLError":                  {400, feedtest.Permanent, "Options"},
		"SlowDown 403":                       {403, feedtest.Passing, ""},
		"RequestLimitExceeded":               {403, feedtest.Passing, ""},
		"Throttling":                         {400, feedtest.Passing, ""},
		"InvalidRequest":                     {400, feedtest.Permanent, "Options"},
		"SomethingNew":                       {403, feedtest.Denied, "refused"},
		"SlowDown":                           {503, feedtest.Passing, ""},
		"TooManyRequests":                    {429, feedtest.Passing, ""},
		"InternalError":                      {500, feedtest.Passing, ""},
		"RequestTimeout":                     {400, feedtest.Passing, ""},
		"ServiceUnavailable":                 {503, feedtest.Passing, ""},
		"Teapot":                             {418, feedtest.Passing, ""},
	} {
		t.Run(code, func(t *testing.T) {
			code, _, _ := strings.Cut(code, " ")
			d := answering(t, refusal(c.status, code))
			for _, err := range feedtest.Errors(t, d) {
				c.is(t, err, `"elections"`, `"one"`, c.advice, code)
			}
		})
	}
}

// What something on the way says of itself may pass.
func TestAnswersOfOthers(t *testing.T) {
	for _, f := range httpfault.OfOthers() {
		for _, err := range feedtest.Errors(t, answering(t, f)) {
			feedtest.Passing(t, err)
		}
	}
}

// answering returns a decider whose every request is answered with f.
func answering(t *testing.T, f httpfault.Fault) leaderelection.RaceDecider {
	tr := &httpfault.Transport{Fault: func(*http.Request) httpfault.Fault { return f }}
	client := inProcess(t, &http.Client{Transport: tr})
	return s3.NewDecider(client, "elections", "one", nil)
}

func TestConflictsAreLostRaces(t *testing.T) {
	for code, status := range map[string]int{"PreconditionFailed": 412, "ConditionalRequestConflict": 409, "OperationAborted": 409, "NoSuchKey": 404} {
		_, err := answering(t, refusal(status, code)).WriteEntry(t.Context(), &first)
		var lost *leaderelection.LostRaceError
		if !errors.As(err, &lost) || lost.Place == "" || lost.Current != nil {
			t.Errorf("%s: %v, want a LostRaceError", code, err)
		}
	}
	// What only looks like it is none.
	for _, f := range []httpfault.Fault{refusal(409, "InvalidBucketState"), {Status: 404, Body: "<html>not found"}} {
		d := answering(t, f)
		if _, err := d.WriteEntry(t.Context(), &first); err == nil || errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("status %d: WriteEntry: %v", f.Status, err)
		}
		if e, err := d.ReadCurrent(t.Context()); err == nil {
			t.Errorf("status %d: ReadCurrent = %+v, want an error", f.Status, e)
		}
	}
}

func TestSpoiltAnswers(t *testing.T) {
	s := overHTTP(t)
	httpfault.SpoiltAnswers(t, s.Serve(), s.Decider)
}

// Without credentials, which a role may yet bring, that is what is said.
func TestNoCredentials(t *testing.T) {
	none := errors.New("no role here")
	client := newClient(t, "https://in-process", func(o *awss3.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, none })
	})
	_, err := s3.NewDecider(client, "elections", "one", nil).ReadCurrent(t.Context())
	if feedtest.Passing(t, err, "AWS_ACCESS_KEY_ID"); !errors.Is(err, none) {
		t.Errorf("%v does not wrap %q", err, none)
	}
}

// What the parameters of an address, and so the options, ask for is in each request that can have it.
func TestOptionsAreSent(t *testing.T) {
	stores.AWSAlone(t, "root", "root-secret")
	h := fakes3.Handler()
	createBucket(t, h, "elections")
	sent := map[string]*http.Request{}
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		sent[r.Method] = r.Clone(r.Context())
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	if _, err := open(t, "s3://elections/one?verify=true&region=here&path_style=true&bucket_owner=123456789012"+
		"&sse=aws:kms&sse_kms_key_id=key-1&checksum=CRC32&endpoint="+server.URL); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		if got := sent[method].Header.Get("X-Amz-Expected-Bucket-Owner"); got != "123456789012" {
			t.Errorf("%s wants the bucket of %q", method, got)
		}
	}
	for name, want := range map[string]string{
		"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1",
		"Content-Type": "application/json",
	} {
		if got := sent[http.MethodPut].Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if h := sent[http.MethodPut].Header; h.Get("X-Amz-Checksum-Crc32") == "" && h.Get("X-Amz-Trailer") == "" {
		t.Errorf("no checksum in %v", h)
	}
	if path := sent[http.MethodPut].URL.Path; !strings.HasPrefix(path, "/elections/one") {
		t.Errorf("path %s", path)
	}
}

// Nothing is sent to an access point of several regions, which has no conditional writes.
func TestMultiRegionIsRefused(t *testing.T) {
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
	feedtest.Write(t, one, 1, nil)
	if e, err := s3.NewDecider(client, bucket, "team/one ü", nil).ReadCurrent(t.Context()); err != nil || e.LeaderID != "a" {
		t.Errorf("ReadCurrent of the same = %+v, %v", e, err)
	}
	if _, err := open(t, "s3://no-such-bucket/one"+at+"&verify=true"); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("verified in a bucket that does not exist: %v, want an error that wraps ErrPermanent", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	awstest.OpenRefuses(t, s3.Open, "s3", "bucket", map[string]string{
		"s3://bucket/one?path_style=perhaps": "true or false",
		"s3://bucket?region=eu-central-1":    "1 to 1024",
		"s3:///one?region=eu-central-1":      "bucket",
		// Parameters that other clients of the store have, and an election does not need.
		"s3://bucket/one?acl=private":             `no parameter "acl"`,
		"s3://bucket/one?storage_class=STANDARD":  `no parameter "storage_class"`,
		"s3://bucket/one?sse_c_key_file=/run/k":   `no parameter "sse_c_key_file"`,
		"s3://bucket/one?tag=team=a":              `no parameter "tag"`,
		"s3://bucket/one?request_payer=requester": `no parameter "request_payer"`,
	})
}

// The next call has the credentials of the file as it is now, whatever the server says of the old ones.
func TestRenewedCredentials(t *testing.T) {
	awstest.Renewed(t, s3.Open, "s3://bucket/one?region=x&path_style=true",
		func(w http.ResponseWriter, _ *http.Request) { failWith(w, http.StatusNotFound, "NoSuchKey") },
		func(w http.ResponseWriter, code string) { failWith(w, http.StatusForbidden, code) },
		"ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied")
}

// Only the answers of a real bucket say that a rule deletes the record, that it is a copy, or that
// it is copied.
func TestDurability(t *testing.T) {
	for header, words := range map[string][]string{
		"": nil,
		`X-Amz-Expiration: expiry-date="Fri, 27 Nov 2026 00:00:00 GMT", rule-id="all"`: {"lifecycle rule deletes"},
		"X-Amz-Replication-Status: REPLICA":                                            {"it is a copy"},
		"X-Amz-Replication-Status: PENDING":                                            {"is replicated to another"},
		"X-Amz-Replication-Status: COMPLETED":                                          {"is replicated to another"},
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
		feedtest.Write(t, d, 1, nil)
		feedtest.Examines(t, d, words...)
		feedtest.Reads(t, d, 1)
	}
}
