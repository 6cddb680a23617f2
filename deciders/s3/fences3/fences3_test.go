package fences3_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"go.uber.org/goleak"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/internal/objecttest"
	"github.com/c8e606e4/leaderelection/deciders/s3/fences3"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bucket = "orders"

// client returns one of the server at url.
func client(url string, rt http.RoundTripper, r aws.Retryer) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(url), UsePathStyle: true, HTTPClient: &http.Client{Transport: rt}, Retryer: r,
		Credentials: credentials.NewStaticCredentialsProvider("root", "root-secret", ""),
	})
}

// quick repeats as the SDK does by default, without its pauses.
func quick() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.Backoff = retry.BackoffDelayerFunc(func(int, error) (d time.Duration, err error) { return })
	})
}

type one struct {
	*s3.Client
	key string
	o   *fences3.Options
}

func (o one) Put(ctx context.Context, token fence.Token, content string) error {
	in := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &o.key, Body: strings.NewReader(content), Metadata: map[string]string{"team": "a", "FencingToken": "mine"}}
	return fences3.Put(ctx, o, token, in, o.o)
}

func (o one) Plain(ctx context.Context, content string, metadata map[string]string) error {
	_, err := o.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &o.key, Body: strings.NewReader(content), Metadata: metadata})
	return err
}

func (o one) Read(ctx context.Context) (string, map[string]string, error) {
	a, err := o.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &o.key})
	if err != nil {
		return "", nil, err
	}
	defer a.Body.Close()
	content, err := io.ReadAll(a.Body)
	return string(content), a.Metadata, err
}

func (o one) Delete(ctx context.Context) error {
	_, err := o.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &o.key})
	return err
}

func TestServers(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{"versitygw": stores.Versitygw, "in process": fakes3.Serve} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			if _, err := client(url, transport(t), quick()).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
				t.Fatal(err)
			}
			for name, r := range map[string]func() aws.Retryer{"retries": quick, "one attempt": func() aws.Retryer { return aws.NopRetryer{} }} {
				t.Run(name, func(t *testing.T) {
					objecttest.Run(t, func(t *testing.T, key string, rt http.RoundTripper) objecttest.Object {
						return one{client(url, rt, r()), name + "/" + key, nil}
					})
				})
			}
			t.Run("equal contents", func(t *testing.T) { equalContents(t, url) })
			if name == "versitygw" { // the other takes any credentials
				t.Run("no permission", func(t *testing.T) { noPermission(t, url) })
			}
			t.Run("no bucket", func(t *testing.T) { noBucket(t, url) })
		})
	}
}

func transport(t *testing.T) *http.Transport {
	tr := new(http.Transport)
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// What the mark in the content is for: by equal contents alone the version that a
// deposed leader saw comes back, and its write would pass.
func equalContents(t *testing.T, url string) {
	tr := transport(t)
	wire := &stopped{RoundTripper: tr}
	vouched := &fences3.Options{UniqueETags: true}
	old, fresh := one{client(url, wire, quick()), "same", vouched}, one{client(url, tr, quick()), "same", vouched}
	holds := func(want string) {
		t.Helper()
		if content, _, err := fresh.Read(t.Context()); content != want || err != nil {
			t.Errorf("%q, %v", content, err)
		}
	}
	if err := fresh.Plain(t.Context(), "same", nil); err != nil {
		t.Fatal(err)
	}
	wire.before = func() {
		if err := fresh.Put(t.Context(), fencetest.Orders(2), "same"); err == nil || !strings.Contains(err.Error(), "MD5") {
			t.Errorf("wrongly vouched for: %v", err)
		}
	}
	if err := old.Put(t.Context(), fencetest.Orders(1), "late"); errors.Is(err, fence.ErrStale) {
		t.Errorf("this server's ETags are no hashes, and the test is none: %v", err)
	}
	holds("late")
	// With the mark in the content the same is refused.
	old.o, fresh.o = nil, nil
	if err := fresh.Put(t.Context(), fencetest.Orders(3), "same"); err == nil || !strings.Contains(err.Error(), `"fencing(orders:3)"`) {
		t.Errorf("without its mark: %v", err)
	}
	wire.before = func() {
		if err := fresh.Put(t.Context(), fencetest.Orders(3), "same fencing(orders:3)"); err != nil {
			t.Error(err)
		}
	}
	if err := old.Put(t.Context(), fencetest.Orders(2), "late fencing(orders:2)"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("%v", err)
	}
	holds("same fencing(orders:3)")
}

// stopped is a leader's network, where something happens before its next write.
type stopped struct {
	http.RoundTripper
	before func()
}

func (s *stopped) RoundTrip(r *http.Request) (*http.Response, error) {
	if f := s.before; r.Method == http.MethodPut && f != nil {
		s.before = nil
		f()
	}
	return s.RoundTripper.RoundTrip(r)
}

func noBucket(t *testing.T, url string) {
	in := &s3.PutObjectInput{Bucket: aws.String("none"), Key: aws.String("k"), Body: strings.NewReader("fencing(orders:1)")}
	err := fences3.Put(t.Context(), client(url, transport(t), quick()), fencetest.Orders(1), in, nil)
	if err == nil || !strings.Contains(err.Error(), "NoSuchBucket") || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("%v", err)
	}
}

func noPermission(t *testing.T, url string) {
	guest := credentials.NewStaticCredentialsProvider("guest", "guest-secret", "")
	c := s3.New(client(url, transport(t), quick()).Options(), func(o *s3.Options) { o.Credentials = guest })
	err := one{c, "forbidden", nil}.Put(t.Context(), fencetest.Orders(1), "fencing(orders:1)")
	if err == nil || !strings.Contains(err.Error(), "s3:ListBucket") || errors.Is(err, fence.ErrStale) {
		t.Errorf("%v", err)
	}
}

// none is a client that is not to be asked.
type none struct{ fences3.Client }

func TestPutRefuses(t *testing.T) {
	key, etag := "k", "e"
	body := strings.NewReader("fencing(orders:1)")
	for name, c := range map[string]struct {
		in    s3.PutObjectInput
		token fence.Token
	}{
		"no body":            {s3.PutObjectInput{}, fencetest.Orders(1)},
		"a stream":           {s3.PutObjectInput{Body: io.MultiReader(body)}, fencetest.Orders(1)},
		"a condition":        {s3.PutObjectInput{Body: body, IfMatch: &etag}, fencetest.Orders(1)},
		"another one":        {s3.PutObjectInput{Body: body, IfNoneMatch: &etag}, fencetest.Orders(1)},
		"no mark":            {s3.PutObjectInput{Body: strings.NewReader("orders:1")}, fencetest.Orders(1)},
		"half a mark":        {s3.PutObjectInput{Body: strings.NewReader("fencing(orders:12)")}, fencetest.Orders(1)},
		"another leadership": {s3.PutObjectInput{Body: body}, fencetest.Orders(2)},
		"no token":           {s3.PutObjectInput{Body: body}, fence.Token{Election: "orders"}},
		"broken content":     {s3.PutObjectInput{Body: broken{body}}, fencetest.Orders(1)},
	} {
		c.in.Bucket, c.in.Key = aws.String(bucket), &key
		err := fences3.Put(t.Context(), none{}, c.token, &c.in, nil)
		if err == nil || !strings.Contains(err.Error(), `S3 bucket "orders", object "k"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// broken is a content that cannot be read.
type broken struct{ io.ReadSeeker }

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

// A mark is found wherever it lies in the content.
func TestMarkAnywhere(t *testing.T) {
	token := fencetest.Orders(7)
	for _, at := range []int{0, 1, 64<<10 - 4, 64 << 10, 128<<10 - 19, 300_000} {
		body := bytes.Repeat([]byte("-"), 300_100)
		copy(body[at:], fences3.Mark(token))
		client := looking(nobody)
		client.put = func(int, *s3.PutObjectInput) (string, error) { return md5of(string(body)), nil }
		in := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("long"), Body: bytes.NewReader(body)}
		if err := fences3.Put(t.Context(), client, token, in, nil); err != nil {
			t.Errorf("at %d: %v", at, err)
		}
	}
}

// scripted is a client that answers its looks and its writes, each by its number from 1, and keeps
// what it was asked.
type scripted struct {
	head     func(n int) s3.HeadObjectOutput // without an ETag: there is no object
	put      func(n int, in *s3.PutObjectInput) (etag string, err error)
	endpoint *string // nil: the server is Amazon's

	looks []*s3.HeadObjectInput
	puts  []*s3.PutObjectInput
}

// looking answers each look by one of these, and by the last one again and again.
func looking(heads ...s3.HeadObjectOutput) *scripted {
	return &scripted{head: func(n int) s3.HeadObjectOutput { return heads[min(n, len(heads))-1] }}
}

func (c *scripted) HeadObject(_ context.Context, in *s3.HeadObjectInput, _ ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	c.looks = append(c.looks, in)
	out := c.head(len(c.looks))
	if out.ETag == nil {
		return nil, answered(http.StatusNotFound, "NotFound")
	}
	return &out, nil
}

func (c *scripted) PutObject(_ context.Context, in *s3.PutObjectInput, _ ...func(*s3.Options)) (*s3.PutObjectOutput, error) {
	c.puts = append(c.puts, in)
	etag, err := c.put(len(c.puts), in)
	if err != nil {
		return nil, err
	}
	return &s3.PutObjectOutput{ETag: &etag}, nil
}

func (c *scripted) Options() s3.Options { return s3.Options{BaseEndpoint: c.endpoint} }

// answered is an error that a server sent.
func answered(status int, code string) error {
	return &awshttp.ResponseError{ResponseError: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: &smithy.GenericAPIError{Code: code},
	}}
}

// sum is what fencingsum holds.
func sum(token, write, content string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", token, write, md5of(content))))
}

func md5of(content string) string { return fmt.Sprintf("%x", md5.Sum([]byte(content))) }

func quoted(content string) *string { return aws.String(`"` + md5of(content) + `"`) }

// held is the look at an object that was written under orders:n.
func held(n int, content string) s3.HeadObjectOutput {
	token, write := fmt.Sprintf("orders:%d", n), "of "+content
	return s3.HeadObjectOutput{ETag: quoted(content), Metadata: map[string]string{"fencingtoken": token, "fencingwrite": write, "fencingsum": sum(token, write, content)}}
}

const content = "state fencing(orders:3)"

// write puts the content under orders:3.
func (c *scripted) write(in s3.PutObjectInput, o *fences3.Options) error {
	if in.Bucket == nil {
		in.Bucket = aws.String(bucket)
	}
	in.Key, in.Body = aws.String("k"), strings.NewReader(content)
	if c.put == nil {
		c.put = func(int, *s3.PutObjectInput) (string, error) { return *quoted(content), nil }
	}
	return fences3.Put(context.Background(), c, fencetest.Orders(3), &in, o)
}

var nobody = s3.HeadObjectOutput{}

// The condition of a write is what was seen: the ETag of an object that is there, be it fenced or
// not, and else that there is none.
func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		heads []s3.HeadObjectOutput
		match string // empty: If-None-Match
	}{
		"no object":               {[]s3.HeadObjectOutput{nobody}, ""},
		"fenced":                  {[]s3.HeadObjectOutput{held(2, "old")}, *quoted("old")},
		"not fenced":              {[]s3.HeadObjectOutput{{ETag: quoted("old")}}, *quoted("old")},
		"a proxy that compresses": {[]s3.HeadObjectOutput{{ETag: aws.String("W/" + *quoted("old")), Metadata: held(2, "old").Metadata}}, *quoted("old")},
	} {
		t.Run(name, func(t *testing.T) {
			client := looking(c.heads...)
			if err := client.write(s3.PutObjectInput{Metadata: map[string]string{"own": "1"}}, nil); err != nil || len(client.puts) != 1 {
				t.Fatalf("%v, %d writes", err, len(client.puts))
			}
			put := client.puts[0]
			if match, none := aws.ToString(put.IfMatch), aws.ToString(put.IfNoneMatch); match != c.match || (none == "*") != (c.match == "") {
				t.Errorf("If-Match %s, If-None-Match %s", match, none)
			}
			// The form of it, by which other versions of this library judge, too.
			m := maps.Clone(put.Metadata)
			write := m["fencingwrite"]
			delete(m, "fencingwrite")
			if want := map[string]string{"own": "1", "fencingtoken": "orders:3", "fencingsum": sum("orders:3", write, content)}; write == "" || !maps.Equal(m, want) {
				t.Errorf("metadata %v, want %v", m, want)
			}
		})
	}
}

// Which looks are believed, and how many there are before a write.
func TestWhichLooksAreBelieved(t *testing.T) {
	strange := s3.HeadObjectOutput{ETag: aws.String(`"strange"`), Metadata: held(2, "old").Metadata} // its sum does not fit
	kms, customer := strange, strange
	kms.ServerSideEncryption = types.ServerSideEncryptionAwsKms
	customer.SSECustomerAlgorithm = aws.String("AES256")
	bare := s3.HeadObjectOutput{ETag: strange.ETag}
	newer := held(9, "newer")
	for name, c := range map[string]struct {
		heads   []s3.HeadObjectOutput
		bucket  string
		options *fences3.Options
		looks   int // before the write; 0: it is refused as stale
		after   int // to find out what became of a write that failed
	}{
		"the sum fits":                      {[]s3.HeadObjectOutput{held(2, "old")}, "", nil, 1, 1},
		"at the second look":                {[]s3.HeadObjectOutput{strange, held(2, "old")}, "", nil, 2, 1},
		"never fenced":                      {[]s3.HeadObjectOutput{bare}, "", nil, 2, 2},
		"SSE-KMS":                           {[]s3.HeadObjectOutput{kms}, "", nil, 2, 2},
		"SSE-C":                             {[]s3.HeadObjectOutput{customer}, "", nil, 2, 2},
		"opaque ETags":                      {[]s3.HeadObjectOutput{strange}, "", &fences3.Options{OpaqueETags: true}, 2, 2},
		"unique ETags":                      {[]s3.HeadObjectOutput{strange}, "", &fences3.Options{UniqueETags: true}, 2, 2},
		"a directory bucket":                {[]s3.HeadObjectOutput{strange}, "x--x-s3", nil, 2, 2},
		"another directory bucket":          {[]s3.HeadObjectOutput{strange}, "x--xa-s3", nil, 2, 2},
		"metadata that get lost on the way": {[]s3.HeadObjectOutput{strange, bare, newer}, "", nil, 0, 0},
		"another ETag each time":            {[]s3.HeadObjectOutput{bare, {ETag: aws.String(`"other"`)}, newer}, "", nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client, in := looking(c.heads...), s3.PutObjectInput{}
			if c.bucket != "" {
				in.Bucket = &c.bucket
			}
			before := 0
			client.put = func(int, *s3.PutObjectInput) (string, error) {
				before = len(client.looks)
				return "", answered(http.StatusForbidden, "AccessDenied") // enough is seen
			}
			err := client.write(in, c.options)
			if c.looks == 0 && (!errors.Is(err, fence.ErrStale) || len(client.puts) > 0) || before != c.looks {
				t.Errorf("%d looks before the write, want %d: %v", before, c.looks, err)
			}
			if after := len(client.looks) - before; c.looks > 0 && after != c.after {
				t.Errorf("%d looks after the write, want %d", after, c.after)
			}
		})
	}
}

// A look has the parts of the caller's request that a look needs, too.
func TestLookHasTheCallersRequest(t *testing.T) {
	client := looking(nobody)
	in := s3.PutObjectInput{ExpectedBucketOwner: aws.String("owner"), RequestPayer: types.RequestPayerRequester,
		SSECustomerAlgorithm: aws.String("AES256"), SSECustomerKey: aws.String("key"), SSECustomerKeyMD5: aws.String("sum")}
	if err := client.write(in, nil); err != nil {
		t.Fatal(err)
	}
	h := client.looks[0]
	got := []string{aws.ToString(h.Bucket), aws.ToString(h.Key), aws.ToString(h.ExpectedBucketOwner), string(h.RequestPayer),
		aws.ToString(h.SSECustomerAlgorithm), aws.ToString(h.SSECustomerKey), aws.ToString(h.SSECustomerKeyMD5)}
	if want := []string{bucket, "k", "owner", "requester", "AES256", "key", "sum"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Only a refused condition is tried again, and not for ever; an ETag without quotes proves a write as one
// with.
func TestWhatIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		again  bool
	}{
		{http.StatusPreconditionFailed, "PreconditionFailed", true}, {http.StatusConflict, "ConditionalRequestConflict", true},
		{http.StatusConflict, "OperationAborted", true}, {http.StatusNotFound, "NoSuchKey", true},
		{http.StatusForbidden, "AccessDenied", false}, {http.StatusServiceUnavailable, "SlowDown", false}, {http.StatusNotFound, "NoSuchBucket", false},
	} {
		client := looking(nobody)
		client.put = func(n int, _ *s3.PutObjectInput) (string, error) {
			if n == 1 {
				return "", answered(c.status, c.code)
			}
			return md5of(content), nil
		}
		err := client.write(s3.PutObjectInput{}, nil)
		if again := len(client.puts) == 2; again != c.again || (err == nil) != c.again || len(client.looks) != 2 {
			t.Errorf("%s: written %d times, after %d looks: %v", c.code, len(client.puts), len(client.looks), err)
		}
	}
	client := looking(nobody)
	client.put = func(int, *s3.PutObjectInput) (string, error) {
		return "", answered(http.StatusConflict, "ConditionalRequestConflict")
	}
	if err := client.write(s3.PutObjectInput{}, nil); err == nil || !strings.Contains(err.Error(), "ConditionalRequestConflict") || errors.Is(err, fence.ErrStale) {
		t.Errorf("refused for ever: %v", err)
	}
}

// What was sent is the whole of the Body, wherever it stood; its Mark may come in any pieces; and
// nothing but UniqueETags makes up for one.
func TestTheBodyIsRead(t *testing.T) {
	written := 0
	put := func(body io.ReadSeeker, o *fences3.Options) error {
		client := looking(nobody)
		client.put = func(_ int, in *s3.PutObjectInput) (string, error) {
			written++
			sent, err := io.ReadAll(in.Body)
			return md5of(string(sent)), err
		}
		return fences3.Put(t.Context(), client, fencetest.Orders(3), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("k"), Body: body}, o)
	}
	half := strings.NewReader("fencing(orders:3) and more")
	_, _ = half.Seek(8, io.SeekStart)
	if err := put(half, nil); err != nil {
		t.Errorf("a Body that stands elsewhere: %v", err)
	}
	slow := strings.NewReader(content)
	if err := put(pieces{iotest.OneByteReader(slow), slow}, nil); err != nil {
		t.Errorf("a Body that comes in pieces: %v", err)
	}
	if err := put(strings.NewReader("no mark"), &fences3.Options{OpaqueETags: true}); err == nil || !strings.Contains(err.Error(), "Mark") {
		t.Errorf("a Body without its Mark: %v", err)
	}
	written = 0
	torn := strings.NewReader(content)
	reader := io.MultiReader(torn, iotest.ErrReader(errors.New("the disk is gone")))
	if err := put(pieces{reader, torn}, nil); err == nil || !strings.Contains(err.Error(), "the disk is gone") || written > 0 {
		t.Errorf("a Body that breaks off is written %d times: %v", written, err)
	}
}

// pieces is read in another way.
type pieces struct {
	io.Reader
	io.Seeker
}

// A server may put together the answer to a HEAD from two versions of the object: versitygw reads each
// piece of metadata, and then the ETag, by the object's name, and a new version may come in between. The
// metadata that one judges by is then older than the version that one's write is conditional on.
func TestLookOfTwoVersions(t *testing.T) {
	for _, o := range []*fences3.Options{nil, {OpaqueETags: true}} {
		for _, fenced := range []bool{true, false} {
			first, second := held(1, "the old leader's"), held(4, "the new leader's")
			if !fenced {
				first.Metadata = nil
			}
			if o != nil {
				first.ETag, second.ETag = aws.String(`"1"`), aws.String(`"2"`)
			}
			for _, older := range [][]string{
				{"fencingtoken", "fencingwrite", "fencingsum"}, {"fencingtoken"}, {"fencingwrite"}, {"fencingsum"},
				{"fencingtoken", "fencingwrite"}, {"fencingtoken", "fencingsum"}, {"ETag"},
			} {
				torn := second
				torn.Metadata = maps.Clone(second.Metadata)
				for _, name := range older {
					if v, is := first.Metadata[name]; name == "ETag" {
						torn.ETag = first.ETag
					} else if is {
						torn.Metadata[name] = v
					} else {
						delete(torn.Metadata, name)
					}
				}
				for skip := range 2 { // a second look may be torn, too, if one is made
					client := looking(append(slices.Repeat([]s3.HeadObjectOutput{first}, skip), torn, second)...)
					accepted, torn := false, false
					client.put = func(_ int, in *s3.PutObjectInput) (string, error) {
						now := first
						if torn = len(client.looks) > skip; torn {
							now = second
						}
						if aws.ToString(in.IfMatch) != *now.ETag {
							return "", answered(http.StatusPreconditionFailed, "PreconditionFailed")
						}
						accepted = true
						return *quoted(content), nil
					}
					err := client.write(s3.PutObjectInput{}, o)
					if accepted && torn || !accepted && !errors.Is(err, fence.ErrStale) || accepted && err != nil {
						t.Errorf("%s of the older, which was fenced: %v, after %d looks, %+v: written %v over the new leader's %v, %v", older, fenced, skip, o, accepted, torn, err)
					}
				}
			}
		}
	}
}

// If every answer is of two versions, nothing is written, and the error says why.
func TestLooksOfTwoVersionsOnly(t *testing.T) {
	client := &scripted{head: func(n int) s3.HeadObjectOutput {
		torn := held(1, "the version before")
		torn.ETag = quoted(fmt.Sprint("version ", n))
		return torn
	}}
	err := client.write(s3.PutObjectInput{}, nil)
	if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "two versions") || !strings.Contains(err.Error(), `object "k"`) || len(client.puts) > 0 {
		t.Errorf("written %d times: %v", len(client.puts), err)
	}
}

// A server that takes no notice of conditions keeps nobody out: nobody raises a fence there, nor makes an
// object, if the client has an endpoint. Amazon's is believed.
func TestImitation(t *testing.T) {
	for _, seen := range []s3.HeadObjectOutput{nobody, held(2, "old")} {
		for _, endpoint := range []*string{nil, aws.String("https://s3.example")} {
			client := looking(seen)
			client.endpoint = endpoint
			err := client.write(s3.PutObjectInput{}, nil)
			last := client.puts[len(client.puts)-1].Metadata["fencingtoken"] // is what it was, else it would not be found out the next time
			if endpoint == nil && (err != nil || last != "orders:3") || endpoint != nil && (err == nil || !strings.Contains(err.Error(), "takes no notice of conditions") || last != seen.Metadata["fencingtoken"]) {
				t.Errorf("of Amazon: %v, the fence is %q: %v", endpoint == nil, last, err)
			}
		}
	}
}

func ExamplePut() {
	ctx := context.Background()
	server := httptest.NewServer(fakes3.Handler()) // a program's is Amazon's
	defer server.Close()
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	bucket, key := aws.String("my-bucket"), aws.String("orders/state.json")
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		fmt.Println(err)
		return
	}

	save := func(number, open int) {
		token := fence.Token{Election: "orders", Number: leaderelection.ElectionNumber(number)} // Gate.Token returns it
		state := fmt.Appendf(nil, `{"writer":%q,"open":%d}`, fences3.Mark(token), open)
		err := fences3.Put(ctx, client, token, &s3.PutObjectInput{Bucket: bucket, Key: key, Body: bytes.NewReader(state)}, nil)
		fmt.Println(err)
	}
	save(1, 17) // the first leader
	save(2, 18) // the second
	save(1, 99) // the first again: it was stopped for longer than its term
	// Output:
	// <nil>
	// <nil>
	// fences3: writing S3 bucket "my-bucket", object "orders/state.json" under orders:1: fence: stale token orders:1: 2 has been seen. If this process leads, the election's record was set back: run leaderelect reset --after 2
}
