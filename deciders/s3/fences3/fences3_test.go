package fences3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
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
