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

// Only a refused condition is tried again; and an ETag without quotes proves a write as one with.
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
