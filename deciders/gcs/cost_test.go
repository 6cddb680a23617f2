//go:build !race

package gcs_test

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/httpfault"
)

// The Decider allocates at most a fifth more than the SDK does by itself.
func TestOwnBytes(t *testing.T) {
	read, write := pairs(t)
	t.Run("read", func(t *testing.T) { read.Bytes(t) })
	t.Run("write", func(t *testing.T) { write.Bytes(t) })
}

// cannedServer answers reads with a record of a candidate with two addresses, and
// writes with what a write is answered with. It is as little of a server as can be,
// so that what the client does stands out.
func cannedServer(t testing.TB) (url string, rec []byte) {
	t.Helper()
	rec = []byte(`{"leaderelection":1,"leader_id":"worker-1.batch.example.com","host_port":["10.20.30.40:8443","[fd00:1234:5678::40]:8443"],"term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":1234,"incarnation":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, inserted(r, body))
			return
		}
		w.Header().Set("X-Goog-Generation", "1")
		w.Header().Set("X-Goog-Hash", "crc32c="+sum(rec))
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 11:24:05 GMT")
		if r.URL.Query().Get("alt") == "json" {
			_, _ = io.WriteString(w, `{"kind":"storage#object","bucket":"elections","name":"one","generation":"1"}`)
			return
		}
		_, _ = w.Write(rec)
	}))
	t.Cleanup(s.Close)
	return s.URL, rec
}

// pairs are a look and an extension, each made by the Decider and by
// the SDK alone.
func pairs(t testing.TB) (read, write httpfault.Pair) {
	url, rec := cannedServer(t)
	c, ctx := client(t, url), context.Background()
	d := gcs.NewDecider(c, bucket, "one", nil)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Bucket(bucket).Object("one").Retryer(storage.WithPolicy(storage.RetryNever))
	read = httpfault.Pair{SDK: func() error {
		r, err := o.NewReader(ctx)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.ReadAll(r)
		return err
	}, Decider: func() error { _, err := d.ReadCurrent(ctx); return err }}
	write = httpfault.Pair{SDK: func() error {
		w := o.If(storage.Conditions{GenerationMatch: 1}).NewWriter(ctx)
		w.ContentType, w.CacheControl, w.ChunkSize = "application/json", "no-store", 256<<10
		w.SendCRC32C, w.CRC32C = true, crc32.Checksum(rec, crc32.MakeTable(crc32.Castagnoli))
		if _, err := io.Copy(w, bytes.NewReader(rec)); err != nil {
			return err
		}
		return w.Close()
	}, Decider: func() error { _, err := d.WriteEntry(ctx, e); return err }}
	return read, write
}
