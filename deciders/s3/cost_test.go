//go:build !race

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
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
	"github.com/c8e606e4/leaderelection/internal/stores/fakes3"
)

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	t.Run("read", func(t *testing.T) { readers(t).Bytes(t) })
	t.Run("write", func(t *testing.T) { writers(t).Bytes(t) })
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
