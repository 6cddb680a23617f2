//go:build !race

package azblob_test

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	read, write := pairs(t)
	t.Run("read", func(t *testing.T) { read.Bytes(t) })
	t.Run("write", func(t *testing.T) { write.Bytes(t) })
}

// rec is the record of a candidate with two addresses.
const rec = `{"leaderelection":1,"leader_id":"worker-1.batch.example.com","host_port":["10.20.30.40:8443","[fd00:1234:5678::40]:8443"],"term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":1234,"incarnation":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`

// cannedServer answers reads with a record, and writes with what a write is
// answered with. It is as little of a server as can be, so that what the client
// does stands out.
func cannedServer(t testing.TB) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") == "0x0" || r.Header.Get("If-None-Match") == "*" {
			w.Header().Set("x-ms-error-code", "ConditionNotMet")
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		w.Header().Set("ETag", `"0x1"`)
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 11:24:05 GMT")
		content := []byte(rec)
		if r.Method == http.MethodPut {
			content, _ = io.ReadAll(r.Body)
		}
		sum := md5.Sum(content)
		w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusCreated)
			return
		}
		_, _ = io.WriteString(w, rec)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/account"
}

// pairs are a look and an extension, each made by the Decider and by
// the SDK alone.
func pairs(t testing.TB) (read, write httpfault.Pair) {
	c, ctx := client(t, cannedServer(t), nil), context.Background()
	d := azblob.NewDecider(c, containerName, "one", nil)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := c.ServiceClient().NewContainerClient(containerName).NewBlockBlobClient("one")
	once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	contentType, cacheControl, etag := "application/json", "no-store", azcore.ETag(`"0x1"`)
	read = httpfault.Pair{SDK: func() error {
		r, err := b.DownloadStream(once, nil)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.ReadAll(r.Body)
		return err
	}, Decider: func() error { _, err := d.ReadCurrent(ctx); return err }}
	write = httpfault.Pair{SDK: func() error {
		_, err := b.Upload(once, streaming.NopCloser(strings.NewReader(rec)), &blockblob.UploadOptions{
			HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: &contentType, BlobCacheControl: &cacheControl},
			AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
		})
		return err
	}, Decider: func() error { _, err := d.WriteEntry(ctx, e); return err }}
	return read, write
}
