package gcs_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

const bucket = "elections"

// client returns one for the emulator at url.
func client(t testing.TB, url string, more ...option.ClientOption) *storage.Client {
	t.Helper()
	c, err := storage.NewClient(context.WithoutCancel(t.Context()),
		append([]option.ClientOption{option.WithEndpoint(url + "/storage/v1/"), option.WithoutAuthentication(), storage.WithJSONReads()}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	server := stores.FakeGCS(t, bucket)
	var elections atomic.Int64
	decidertest.Run(t, func(t testing.TB) func() leaderelection.RaceDecider {
		object := fmt.Sprintf("some/path/%d", elections.Add(1))
		return func() leaderelection.RaceDecider { return gcs.NewDecider(client(t, server), bucket, object, nil) }
	}, nil)
}

// receive starts a server that takes in one write, and returns its URL.
func receive(t testing.TB, body, query *string) string {
	t.Helper()
	s := httptest.NewServer(once(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		*body, *query = string(b), r.URL.RawQuery
		_, _ = io.WriteString(w, inserted(r, b))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// once has a request of each three answered, and refuses the two that a decider makes after it to
// see that conditions are honored.
func once(answer http.HandlerFunc) http.Handler {
	var n atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%3 == 1 {
			answer(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, jsonError("conditionNotMet"))
	})
}

// inserted is how the service describes the object that a request with this body made.
func inserted(r *http.Request, body []byte) string {
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	var content []byte
	for {
		part, err := parts.NextPart()
		if err != nil {
			break
		}
		content, _ = io.ReadAll(part) // the last part
	}
	return fmt.Sprintf(`{"kind":"storage#object","bucket":"elections","name":"one","generation":"2","updated":"2026-11-21T11:24:05.123Z","size":"%d","crc32c":"%s"}`, len(content), sum(content))
}

// sum is a checksum in the form of the service.
func sum(content []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))))
}

// An object that soft delete has kept, and somebody restores, is a new generation of old content.
// A write over a later version is refused, and the record goes on from the restored one.
func TestSoftDeletedIsRestored(t *testing.T) {
	c := client(t, stores.FakeGCS(t, bucket))
	d, object := gcs.NewDecider(c, bucket, "restored", nil), c.Bucket(bucket).Object("restored")
	first := feedtest.Write(t, d, 1, nil)
	r, err := object.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	later := feedtest.Write(t, d, 3, feedtest.Write(t, d, 2, first))
	w := object.NewWriter(t.Context())
	_, err = w.Write(old)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, known := range []leaderelection.LeaderToken{first, later} {
		feedtest.Lost(t, feedtest.WriteError(t, d, 4, known))
	}
	e := feedtest.Read(t, d)
	if e.ElectionNumber != 1 {
		t.Errorf("number %d is read, 1 was restored", e.ElectionNumber)
	}
	feedtest.Write(t, d, 4, e.Token)
}

// The tokens of one version, as written and as read, tell the same time, the one
// to the millisecond and the other in seconds.
func TestCommitTS(t *testing.T) {
	d := gcs.NewDecider(client(t, stores.FakeGCS(t, bucket)), bucket, "one", nil)
	written, err := d.WriteEntry(t.Context(), &leaderelection.RaceEntry{ElectionNumber: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w, r := written.CommitTS(), e.Token.CommitTS(); !w.Truncate(time.Second).Equal(r) || time.Since(w).Abs() > time.Minute {
		t.Errorf("written at %v, and read as of %v", w, r)
	}
}

// A record near the size limit is one request, too.
func TestLargeRecord(t *testing.T) {
	sent := 0
	c := client(t, stores.FakeGCS(t, bucket), option.WithHTTPClient(&http.Client{Transport: answers(func(r *http.Request) (*http.Response, error) {
		sent++
		return http.DefaultTransport.RoundTrip(r)
	})}))
	d := gcs.NewDecider(c, bucket, "one", nil)
	e := &leaderelection.RaceEntry{ElectionNumber: 1}
	for _, size := range []int{100, 190 << 10, 196_430} { // as base64: up to the limit
		e.ConnectionParams = make([]byte, size)
		token, err := d.WriteEntry(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		read, err := d.ReadCurrent(t.Context())
		if err != nil || len(read.ConnectionParams) != size {
			t.Fatalf("%d bytes: %v", size, err)
		}
		e.Token = token
	}
	if sent != 6 {
		t.Errorf("%d requests for three writes and three reads", sent)
	}
}
