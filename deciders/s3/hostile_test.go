//go:build go1.25

package s3_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/httpfault"
)

// first is a record.
var first = leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, Incarnation: "i"}

// The delete marker of a versioned bucket shows that there was an object.
func TestDeleteMarker(t *testing.T) {
	for marked, client := range map[bool]*awss3.Client{
		false: like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) { server.ServeHTTP(w, r) }),
		true: like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
			if _, there := exists(r, server); !there && r.Method == http.MethodGet {
				w.Header().Set("X-Amz-Delete-Marker", "true")
			}
			server.ServeHTTP(w, r)
		}),
	} {
		d := s3.NewDecider(client, "elections", "one", nil)
		e, err := d.ReadCurrent(t.Context())
		if err != nil || !e.Vacant() || e.ElectionNumber != leaderelection.NoElections || e.Emptied != marked {
			t.Errorf("%+v, %v; want Emptied %v", e, err, marked)
		}
		if _, err := d.WriteEntry(t.Context(), &first); err != nil {
			t.Error(err)
		}
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
	old, err := d.WriteEntry(t.Context(), &first)
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.Replace(contentOf(t, client, bucket, key), `"leader_id":"a"`, `"leader_id": "b"`, 1)
	if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(edited)}); err != nil {
		t.Fatal(err)
	}
	e := first
	e.Token = old
	if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry over what was edited by hand: %v, want %v", err, leaderelection.ErrLostRace)
	}
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
	e := first
	var err error
	if e.Token, err = d.WriteEntry(t.Context(), &e); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	e.Extension++
	if _, err := d.WriteEntry(t.Context(), &e); !errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("WriteEntry over a deleted record: %v, want %v", err, leaderelection.ErrLostRace)
	}
	vacant, err := d.ReadCurrent(t.Context())
	if err != nil || !vacant.Vacant() || vacant.ElectionNumber != leaderelection.NoElections {
		t.Fatalf("ReadCurrent = %+v, %v", vacant, err)
	}
	e.Token = vacant.Token
	if _, err := d.WriteEntry(t.Context(), &e); err != nil {
		t.Errorf("WriteEntry to create it again: %v", err)
	}
}

func contentOf(t *testing.T, client *awss3.Client, bucket, key string) string {
	t.Helper()
	out, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, out.Body); err != nil {
		t.Fatal(err)
	}
	return b.String()
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
	e, err := s3.NewDecider(newClient(t, endpoint), bucket, "one", nil).ReadCurrent(t.Context())
	if err != nil || e.ElectionNumber != leaderelection.NoElections {
		t.Errorf("something was written: %+v, %v", e, err)
	}
}

// What the service answers, whatever the emulators do.
func TestAnswers(t *testing.T) {
	for code, c := range map[string]struct {
		status  int
		forGood bool
		advice  string
	}{
		"AccessDenied":                       {403, true, "s3:ListBucket"},
		"InvalidAccessKeyId":                 {403, true, "credentials"},
		"SignatureDoesNotMatch":              {403, true, "secret"},
		"ExpiredToken":                       {400, true, "expired"},
		"InvalidToken":                       {400, true, "credentials"},
		"RequestTimeTooSkewed":               {403, false, "clock"},
		"PermanentRedirect":                  {301, true, "region"},
		"AuthorizationHeaderMalformed":       {400, true, "region"},
		"IllegalLocationConstraintException": {400, true, "region"},
		"NoSuchBucket":                       {404, true, "create it"},
		"InvalidBucketName":                  {400, true, "name"},
		"KeyTooLongError":                    {400, true, "name"},
		"NotImplemented":                     {501, true, "conditional writes"},
		"InvalidObjectState":                 {403, true, "archived"},
		"KMS.DisabledException":              {400, true, "KMS"},
		"KMS.NotFoundException":              {400, true, "KMS"},
		"KMS.KMSInvalidStateException":       {400, true, "KMS"},
		"KMS.ThrottlingException":            {400, false, ""},
		"KMS.InternalException":              {500, false, ""},
		"KMS.DependencyTimeoutException":     {503, false, ""},
		"AccessControlListNotSupported":      {400, true, "Options"},
		"MalformedACLError":                  {400, true, "Options"},
		"SlowDown 403":                       {403, false, ""},
		"RequestLimitExceeded":               {403, false, ""},
		"Throttling":                         {400, false, ""},
		"InvalidRequest":                     {400, true, "Options"},
		"SomethingNew":                       {403, true, "refused"},
		"SlowDown":                           {503, false, ""},
		"TooManyRequests":                    {429, false, ""},
		"InternalError":                      {500, false, ""},
		"RequestTimeout":                     {400, false, ""},
		"ServiceUnavailable":                 {503, false, ""},
		"Teapot":                             {418, false, ""},
	} {
		t.Run(code, func(t *testing.T) {
			code, _, _ := strings.Cut(code, " ")
			d := answering(t, refusal(c.status, code))
			if c.forGood {
				feedtest.Refuses(t, d, `"elections"`, `"one"`, c.advice, code)
				return
			}
			feedtest.Passing(t, feedtest.WriteError(t, d, 1, nil), c.advice)
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

// The options are in the request.
func TestOptionsAreSent(t *testing.T) {
	var sent *http.Request
	made := new(once)
	tr := &httpfault.Transport{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if made.refuses(r) {
			failWith(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		sent = r
		content, err := io.ReadAll(httputil.NewChunkedReader(r.Body)) // as the SDK sends what has a checksum
		if err != nil && r.Method == http.MethodPut {
			t.Error(err)
		}
		w.Header().Set("Etag", fmt.Sprintf(`"%x"`, md5.Sum(content)))
	})}
	client := inProcess(t, &http.Client{Transport: tr})
	d := s3.NewDecider(client, "b", "k", &s3.Options{ServerSideEncryption: "aws:kms",
		SSEKMSKeyID: "key-1", ExpectedBucketOwner: "123456789012", ChecksumAlgorithm: "CRC32"})
	if _, err := d.WriteEntry(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"X-Amz-Server-Side-Encryption":                "aws:kms",
		"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "key-1", "X-Amz-Expected-Bucket-Owner": "123456789012",
		"If-None-Match": "*", "Content-Type": "application/json",
	} {
		if got := sent.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if sent.Header.Get("X-Amz-Checksum-Crc32") == "" && sent.Header.Get("X-Amz-Trailer") == "" {
		t.Errorf("no checksum in %v", sent.Header)
	}
	_, _ = d.ReadCurrent(t.Context())
	if got := sent.Header.Get("X-Amz-Expected-Bucket-Owner"); got != "123456789012" {
		t.Errorf("reading without the owner: %q", got)
	}
	if !strings.Contains(sent.URL.Path, "/b/k") {
		t.Errorf("path %s", sent.URL.Path)
	}
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

// once is what a server that does not think has to know of conditions: it refuses to make
// the object a second time, and to replace the version that no object has.
type once struct{ made atomic.Bool }

func (o *once) refuses(r *http.Request) bool {
	return r.Header.Get("If-None-Match") == "*" && o.made.Swap(true) || strings.Contains(r.Header.Get("If-Match"), "0123456789abcdef")
}

// Servers may put together the answer to a read from two versions. A content that is
// older than the ETag that came with it would be overwritten unseen.
func TestReadOfTwoVersions(t *testing.T) {
	for name, etag := range map[string]func(string) string{
		"MD5s":   func(s string) string { return s },
		"others": func(s string) string { return strings.Map(rotate, s) },
	} {
		o := &s3.Options{OpaqueETags: name == "others"}
		for _, older := range []string{"content", "ETag"} { // versitygw's are of the second kind
			for skip := range 2 { // that many reads before are of one version
				t.Run(fmt.Sprintf("%s/older %s/%d", name, older, skip), func(t *testing.T) {
					var between func()
					gets := 0
					client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
						if m := r.Header.Get("If-Match"); m != "" {
							r.Header.Set("If-Match", etag(m)) // its own inverse
						}
						f := between
						if gets++; r.Method != http.MethodGet || f == nil || gets <= skip {
							changed(w, r, server, etag)
							return
						}
						between = nil
						before, after := httptest.NewRecorder(), httptest.NewRecorder()
						changed(before, r, server, etag)
						f()
						changed(after, r, server, etag)
						if older == "ETag" {
							before, after = after, before
						}
						before.Header().Set("ETag", after.Header().Get("ETag"))
						answer(w, before)
					})
					leader, other := s3.NewDecider(client, "elections", "k", o), s3.NewDecider(client, "elections", "k", o)
					write := func(d *s3.Decider, e leaderelection.RaceEntry) error {
						_, err := d.WriteEntry(t.Context(), &e)
						return err
					}
					first := leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now().Add(time.Minute)}
					if err := write(leader, first); err != nil {
						t.Fatal(err)
					}
					e, err := leader.ReadCurrent(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					gets = 0
					between = func() {
						e.LeaderID, e.ElectionNumber = "b", 2
						if err := write(leader, *e); err != nil {
							t.Error(err)
						}
					}
					seen, err := other.ReadCurrent(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					between = nil
					claim := *seen
					claim.LeaderID, claim.ElectionNumber = "c", seen.ElectionNumber+1
					if err := write(other, claim); seen.LeaderID != "b" && err == nil && e.LeaderID == "b" {
						t.Errorf("the record of b was replaced unseen, by a token that came with that of %s", seen.LeaderID)
					}
				})
			}
		}
	}
}

// rotated is a server whose ETags are no MD5s, though they look like some.
func rotated(w http.ResponseWriter, r *http.Request, server http.Handler) {
	if m := r.Header.Get("If-Match"); m != "" {
		r.Header.Set("If-Match", strings.Map(rotate, m))
	}
	changed(w, r, server, func(etag string) string { return strings.Map(rotate, etag) })
}

// rotate is its own inverse, on the digits of an ETag.
func rotate(r rune) rune {
	const hex = "0123456789abcdef"
	if i := strings.IndexRune(hex, r); i >= 0 {
		return rune(hex[15-i])
	}
	return r
}

// If all answers are of two versions, reading fails, and says why.
func TestReadsOfTwoVersionsOnly(t *testing.T) {
	n := 0
	client := like(t, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		changed(w, r, server, func(s string) string {
			if n++; r.Method == http.MethodGet {
				return fmt.Sprintf(`"%032x"`, n)
			}
			return s
		})
	})
	d := s3.NewDecider(client, "elections", "k", nil)
	if _, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{LeaderID: "a", ElectionNumber: 1, TermExpiry: time.Now().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	feedtest.Passing(t, feedtest.ReadError(t, d), "does not fit its ETag")
}

// checksummed reports whether an upload has a checksum of any kind.
func checksummed(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Checksum-") || name == "X-Amz-Trailer" || name == "Content-Md5" {
			return true
		}
	}
	return false
}

// refusing answers uploads with an error of the server's own if they are so.
func refusing(so func(*http.Request) bool, status int, code, message string) quirk {
	return func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if r.Method != http.MethodPut || !so(r) {
			server.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("X-Amz-Request-Id", "PEHTQHS7XPM30ZXH")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`))
	}
}

// A bucket with Object Lock takes uploads with a checksum alone; many servers know Content-MD5 and no
// other. A server that refuses the checksum that it is sent is not taken for one that knows no
// conditions. The words are those of S3, R2, B2, and s3proxy.
func TestChecksums(t *testing.T) {
	extra := func(r *http.Request) bool {
		return r.Header.Get("X-Amz-Trailer") != "" || r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "" || r.Header.Get("X-Amz-Checksum-Crc32") != ""
	}
	const leaveOut = "leave out Options.ChecksumAlgorithm"
	for name, c := range map[string]struct {
		q        quirk
		bare, is string // what is said without a ChecksumAlgorithm, and with one; empty: it writes
	}{
		"object lock": {refusing(func(r *http.Request) bool { return !checksummed(r) }, http.StatusBadRequest, "InvalidRequest",
			"Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object requests with Object Lock parameters"), "", ""},
		"R2":      {refusing(extra, http.StatusNotImplemented, "NotImplemented", "Header 'x-amz-checksum-crc32' with value '8FJbTw==' not implemented"), "", leaveOut},
		"B2":      {refusing(extra, http.StatusBadRequest, "InvalidArgument", "Unsupported header 'x-amz-sdk-checksum-algorithm' received for this API call."), "", leaveOut},
		"s3proxy": {refusing(extra, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented."), "", leaveOut},
		"no conditions": {refusing(func(*http.Request) bool { return true }, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented."),
			"does not implement conditional writes: it cannot", leaveOut},
	} {
		for algorithm, says := range map[types.ChecksumAlgorithm]string{"": c.bare, types.ChecksumAlgorithmCrc32: c.is} {
			d := s3.NewDecider(like(t, c.q), "elections", "one", &s3.Options{ChecksumAlgorithm: algorithm})
			_, err := d.WriteEntry(t.Context(), &first)
			if says != "" {
				feedtest.Permanent(t, err, says)
			} else if err != nil {
				t.Errorf("%s, %q: %v", name, algorithm, err)
			}
		}
	}
}

// Directory buckets do not know Content-MD5.
func TestNoMD5ForDirectoryBuckets(t *testing.T) {
	for bucket, want := range map[string]bool{"elections": true, "elections--euc1-az1--x-s3": false} {
		c := &noting{}
		_, _ = s3.NewDecider(c, bucket, "one", nil).WriteEntry(t.Context(), &first)
		if c.put == nil || (c.put.ContentMD5 != nil) != want {
			t.Errorf("%s: %+v", bucket, c.put)
		}
	}
}

// noting notes what is to be put, and does not put it.
type noting struct {
	s3.Client
	put *awss3.PutObjectInput
}

func (n *noting) PutObject(_ context.Context, in *awss3.PutObjectInput, _ ...func(*awss3.Options)) (*awss3.PutObjectOutput, error) {
	n.put = in
	return nil, errors.New("not now")
}
