package fences3_test

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/c8e606e4/leaderelection/deciders/s3/fences3"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores/fakes3"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// scripted is a client that gives these answers to its looks, the last one again and again, and
// to its writes; and keeps what it was asked.
type scripted struct {
	heads []s3.HeadObjectOutput // without an ETag: there is no object
	put   func(n int, in *s3.PutObjectInput) (etag string, err error)

	looks []*s3.HeadObjectInput
	puts  []*s3.PutObjectInput
}

func (c *scripted) HeadObject(_ context.Context, in *s3.HeadObjectInput, _ ...func(*s3.Options)) (*s3.HeadObjectOutput, error) {
	c.looks = append(c.looks, in)
	out := c.heads[min(len(c.looks), len(c.heads))-1]
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

// Options has the server be Amazon's.
func (c *scripted) Options() s3.Options { return s3.Options{} }

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
	token := fmt.Sprintf("orders:%d", n)
	return s3.HeadObjectOutput{ETag: quoted(content), Metadata: map[string]string{"fencingtoken": token, "fencingwrite": "w", "fencingsum": sum(token, "w", content)}}
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
			client := &scripted{heads: c.heads}
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
	}{
		"the sum fits":                      {[]s3.HeadObjectOutput{held(2, "old")}, "", nil, 1},
		"at the second look":                {[]s3.HeadObjectOutput{strange, held(2, "old")}, "", nil, 2},
		"never fenced":                      {[]s3.HeadObjectOutput{bare}, "", nil, 2},
		"SSE-KMS":                           {[]s3.HeadObjectOutput{kms}, "", nil, 2},
		"SSE-C":                             {[]s3.HeadObjectOutput{customer}, "", nil, 2},
		"opaque ETags":                      {[]s3.HeadObjectOutput{strange}, "", &fences3.Options{OpaqueETags: true}, 2},
		"unique ETags":                      {[]s3.HeadObjectOutput{strange}, "", &fences3.Options{UniqueETags: true}, 2},
		"a directory bucket":                {[]s3.HeadObjectOutput{strange}, "x--x-s3", nil, 2},
		"another directory bucket":          {[]s3.HeadObjectOutput{strange}, "x--xa-s3", nil, 2},
		"metadata that get lost on the way": {[]s3.HeadObjectOutput{strange, bare, newer}, "", nil, 0},
		"another ETag each time":            {[]s3.HeadObjectOutput{bare, {ETag: aws.String(`"other"`)}, newer}, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client, in := &scripted{heads: c.heads}, s3.PutObjectInput{}
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
		})
	}
}

// A look has the parts of the caller's request that a look needs, too.
func TestLookHasTheCallersRequest(t *testing.T) {
	client := &scripted{heads: []s3.HeadObjectOutput{nobody}}
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
		client := &scripted{heads: []s3.HeadObjectOutput{nobody}}
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
	client := &scripted{heads: []s3.HeadObjectOutput{nobody}, put: func(int, *s3.PutObjectInput) (string, error) {
		return "", answered(http.StatusConflict, "ConditionalRequestConflict")
	}}
	if err := client.write(s3.PutObjectInput{}, nil); err == nil || !strings.Contains(err.Error(), "ConditionalRequestConflict") || errors.Is(err, fence.ErrStale) {
		t.Errorf("refused for ever: %v", err)
	}
}

// What was sent is the whole of the Body, wherever it stood; its Mark may come in any pieces; and
// nothing but UniqueETags makes up for one.
func TestTheBodyIsRead(t *testing.T) {
	written := 0
	put := func(body io.ReadSeeker, o *fences3.Options) error {
		client := &scripted{heads: []s3.HeadObjectOutput{nobody}, put: func(_ int, in *s3.PutObjectInput) (string, error) {
			written++
			sent, err := io.ReadAll(in.Body)
			return md5of(string(sent)), err
		}}
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

// A server may put together the answer to a HEAD from two versions of the object:
// versitygw reads each piece of metadata, and then the ETag, by the object's name,
// and a new version may come in between. The metadata that one judges by is then
// older than the version that one's write is conditional on.
func TestLookOfTwoVersions(t *testing.T) {
	for server, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"ETags of content": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"other ETags":      func(rt http.RoundTripper) http.RoundTripper { return otherETags{rt} },
	} {
		o := &fences3.Options{OpaqueETags: server == "other ETags"}
		url := fakes3.Serve(t)
		create(t, url)
		for what, older := range map[string][]string{
			"all metadata": {"Fencingtoken", "Fencingwrite", "Fencingsum"},
			"its token":    {"Fencingtoken"},
			"its write":    {"Fencingwrite"},
			"its sum":      {"Fencingsum"},
			"token, write": {"Fencingtoken", "Fencingwrite"},
			"token, sum":   {"Fencingtoken", "Fencingsum"},
			"ETag":         {""},
		} {
			for first, begin := range map[string]func(one) error{
				"fenced":     func(o one) error { return o.Put(t.Context(), fencetest.Orders(1), "first fencing(orders:1)") },
				"not fenced": func(o one) error { return o.Plain(t.Context(), "first", nil) },
			} {
				for skip := range 2 { // a second look may be torn, too, if one is made
					name := fmt.Sprintf("%s, %s of the older, which was %s, after %d looks", server, what, first, skip)
					wire := &torn{RoundTripper: wrap(transport(t)), skip: skip, older: older}
					old, fresh := one{client(url, wire, quick()), name, o}, one{client(url, wrap(transport(t)), quick()), name, o}
					if err := begin(fresh); err != nil {
						t.Fatal(err)
					}
					wire.within = func() {
						if err := fresh.Put(t.Context(), fencetest.Orders(2), "new leader fencing(orders:2)"); err != nil {
							t.Error(err)
						}
					}
					want, holds := fence.ErrStale, "new leader fencing(orders:2)"
					err := old.Put(t.Context(), fencetest.Orders(1), "old leader fencing(orders:1)")
					if wire.within != nil { // one look was enough
						want, holds = nil, "old leader fencing(orders:1)"
					}
					if !errors.Is(err, want) {
						t.Errorf("%s: %v", name, err)
					}
					if content, _, err := fresh.Read(t.Context()); content != holds || err != nil {
						t.Errorf("%s: it holds %q, %v", name, content, err)
					}
				}
			}
		}
	}
}

// Where every answer is of two versions, nothing is written, and the error says why.
func TestLooksOfTwoVersionsOnly(t *testing.T) {
	url := fakes3.Serve(t)
	create(t, url)
	wire := &torn{RoundTripper: transport(t), older: []string{"Fencingtoken"}}
	old, fresh := one{client(url, wire, quick()), "k", nil}, one{client(url, transport(t), quick()), "k", nil}
	n := uint64(1)
	var again func()
	again = func() {
		n++
		token := fencetest.Orders(n)
		if err := fresh.Put(t.Context(), token, fmt.Sprintf("fencing(%v)", token)); err != nil {
			t.Error(err)
		}
		wire.within = again
	}
	again()
	err := old.Put(t.Context(), fencetest.Orders(1000), "fencing(orders:1000)")
	if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "two versions") || !strings.Contains(err.Error(), `object "k"`) {
		t.Errorf("%v", err)
	}
	if content, _, err := fresh.Read(t.Context()); content != fmt.Sprintf("fencing(orders:%d)", n) || err != nil {
		t.Errorf("it holds %q, %v", content, err)
	}
}

// A look that its metadata prove costs one request, and another two.
func TestLooks(t *testing.T) {
	url := fakes3.Serve(t)
	create(t, url)
	for name, c := range map[string]struct {
		wrap         func(http.RoundTripper) http.RoundTripper
		first, later int64
	}{
		"ETags of content": {func(rt http.RoundTripper) http.RoundTripper { return rt }, 1, 1},
		"other ETags":      {func(rt http.RoundTripper) http.RoundTripper { return otherETags{rt} }, 3, 4}, // two of them prove the write
	} {
		count := &counting{RoundTripper: c.wrap(transport(t))}
		o := one{client(url, count, quick()), name, &fences3.Options{OpaqueETags: name == "other ETags"}}
		for n := range uint64(3) {
			token := fencetest.Orders(1 + n)
			if err := o.Put(t.Context(), token, fmt.Sprintf("fencing(%v)", token)); err != nil {
				t.Fatal(err)
			}
			want := c.later
			if n == 0 {
				want = c.first
			}
			if got := count.heads.Swap(0); got != want {
				t.Errorf("%s, write %d: %d looks, want %d", name, n+1, got, want)
			}
		}
	}
}

type counting struct {
	http.RoundTripper
	heads atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodHead {
		c.heads.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// torn is the network of a server one of whose answers to a HEAD is of two versions,
// between which within was called: the metadata named in older, and the ETag for an
// empty name, are of the first, and all else of the second.
type torn struct {
	http.RoundTripper
	skip   int // so many are answered rightly before that
	within func()
	older  []string
}

func (s *torn) RoundTrip(r *http.Request) (*http.Response, error) {
	within := s.within
	if r.Method != http.MethodHead || within == nil {
		return s.RoundTripper.RoundTrip(r)
	}
	if s.skip > 0 {
		s.skip--
		return s.RoundTripper.RoundTrip(r)
	}
	s.within = nil
	before, err := s.RoundTripper.RoundTrip(r.Clone(r.Context()))
	if err != nil {
		return nil, err
	}
	before.Body.Close()
	within()
	after, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	for _, name := range s.older {
		if name = "X-Amz-Meta-" + name; name == "X-Amz-Meta-" {
			name = "Etag"
		}
		if v, ok := before.Header[name]; ok {
			after.Header[name] = v
		} else {
			delete(after.Header, name)
		}
	}
	return after, nil
}

// otherETags is the network of a server whose ETags are no MD5s, though they look
// like some.
type otherETags struct{ http.RoundTripper }

func (o otherETags) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if m := r.Header.Get("If-Match"); m != "" {
		r.Header.Set("If-Match", reversed(m))
	}
	a, err := o.RoundTripper.RoundTrip(r)
	if err == nil && a.Header.Get("Etag") != "" {
		a.Header.Set("Etag", reversed(a.Header.Get("Etag")))
	}
	return a, err
}

func reversed(etag string) string {
	b := []byte(etag)
	slices.Reverse(b)
	return string(b)
}
