package s3_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores/fakes3"
)

// A record with two addresses stays small.
func TestSizeOfARecord(t *testing.T) {
	h := fakes3.Handler()
	createBucket(t, h, "elections")
	if n := len(stored(t, h)); n > 600 {
		t.Errorf("a record has %d bytes, more than 600", n)
	} else {
		t.Logf("a record has %d bytes", n)
	}
}

// stored returns what an ordinary record looks like in the server's bucket.
func stored(t testing.TB, h http.Handler) []byte {
	t.Helper()
	client := reach(t, h)
	if _, err := s3.NewDecider(client, "elections", "one", nil).WriteEntry(t.Context(), httpfault.Record()); err != nil {
		t.Fatal(err)
	}
	out, err := client.GetObject(t.Context(), &awss3.GetObjectInput{Bucket: aws.String("elections"), Key: aws.String("one")})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// benchClient returns a client of a server on the loopback interface that says
// what it has to without thinking, the content that it returns and its ETag.
func benchClient(b testing.TB) (client *awss3.Client, data []byte, etag string) {
	h := fakes3.Handler()
	createBucket(b, h, "elections")
	data = stored(b, h)
	etag = fmt.Sprintf(`"%x"`, md5.Sum(data))
	made := new(once)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		if made.refuses(r) {
			failWith(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		w.Header().Set("ETag", etag)
		if r.Method == http.MethodPut {
			w.Header().Set("ETag", fmt.Sprintf(`"%x"`, md5.Sum(sent)))
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 11:24:05 GMT")
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			_, _ = w.Write(data)
		}
	}))
	b.Cleanup(s.Close)
	return newClient(b, s.URL), data, etag
}

// once is what a server that does not think has to know of conditions: it refuses to make
// the object a second time, and to replace the version that no object has.
type once struct{ made atomic.Bool }

func (o *once) refuses(r *http.Request) bool {
	return r.Header.Get("If-None-Match") == "*" && o.made.Swap(true) || strings.Contains(r.Header.Get("If-Match"), "0123456789abcdef")
}

// writers return functions that write by the SDK alone and by the decider.
func writers(b testing.TB) httpfault.Pair {
	ctx := context.Background()
	client, data, etag := benchClient(b)
	in := &awss3.PutObjectInput{Bucket: aws.String("elections"), Key: aws.String("one"), ContentType: aws.String("application/json"), IfMatch: &etag}
	return httpfault.Pair{
		SDK: func() error {
			in.Body = bytes.NewReader(data)
			_, err := client.PutObject(ctx, in)
			return err
		},
		Decider: httpfault.Extends(s3.NewDecider(client, "elections", "one", nil)),
	}
}

// readers return functions that read by the SDK alone and by the decider.
func readers(b testing.TB) httpfault.Pair {
	ctx := context.Background()
	client, _, _ := benchClient(b)
	in := &awss3.GetObjectInput{Bucket: aws.String("elections"), Key: aws.String("one")}
	d := s3.NewDecider(client, "elections", "one", nil)
	return httpfault.Pair{
		SDK: func() error {
			out, err := client.GetObject(ctx, in)
			if err != nil {
				return err
			}
			defer out.Body.Close()
			_, err = io.ReadAll(out.Body)
			return err
		},
		Decider: func() error { _, err := d.ReadCurrent(ctx); return err },
	}
}
