//go:build !race

// Under the race detector neither time nor allocated bytes mean anything.

package azblob_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/azblob"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// rec is the record of a candidate with two addresses.
const rec = `{"leaderelection":1,"leader_id":"worker-1.batch.example.com","host_port":["10.20.30.40:8443","[fd00:1234:5678::40]:8443"],"term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":1234,"incarnation":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`

// cannedServer answers reads with a record, and writes with what a write is
// answered with. It is as little of a server as can be, so that what the client
// does stands out.
func cannedServer(t testing.TB) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"0x1"`)
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 11:24:05 GMT")
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			return
		}
		_, _ = io.WriteString(w, rec)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/account"
}

// calls are what is compared: a call of the Decider, and the same request made
// with nothing but the SDK.
type calls struct{ read, write, bareRead, bareWrite func() error }

func newCalls(t testing.TB) calls {
	c, ctx := client(t, cannedServer(t), nil), context.Background()
	d := azblob.NewDecider(c, containerName, "one", nil)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := c.ServiceClient().NewContainerClient(containerName).NewBlockBlobClient("one")
	once := policy.WithRetryOptions(ctx, policy.RetryOptions{MaxRetries: -1})
	contentType, cacheControl, etag := "application/json", "no-store", azcore.ETag(`"0x1"`)
	return calls{
		read:  func() error { _, err := d.ReadCurrent(ctx); return err },
		write: func() error { _, err := d.WriteEntry(ctx, e); return err },
		bareRead: func() error {
			r, err := b.DownloadStream(once, nil)
			if err != nil {
				return err
			}
			defer r.Body.Close()
			_, err = io.ReadAll(r.Body)
			return err
		},
		bareWrite: func() error {
			_, err := b.Upload(once, streaming.NopCloser(strings.NewReader(rec)), &blockblob.UploadOptions{
				HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: &contentType, BlobCacheControl: &cacheControl},
				AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}},
			})
			return err
		},
	}
}

func (c calls) each(f func(name string, bare, own func() error)) {
	f("Read", c.bareRead, c.read)
	f("Write", c.bareWrite, c.write)
}

// Own cost: "Decider" less "SDK".
func BenchmarkOwnCost(b *testing.B) {
	newCalls(b).each(func(name string, bare, own func() error) {
		for _, who := range []struct {
			name string
			call func() error
		}{{"SDK", bare}, {"Decider", own}} {
			b.Run(name+"/"+who.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := who.call(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// Both in turn, so that what else the machine does meets both alike: the
// difference of the medians as a share.
func BenchmarkOwnTime(b *testing.B) {
	newCalls(b).each(func(name string, bare, own func() error) {
		b.Run(name, func(b *testing.B) {
			var took [2][]time.Duration
			for i := 0; b.Loop(); i++ {
				for j := range 2 {
					j = (i + j) % 2
					began := time.Now()
					if err := [2]func() error{bare, own}[j](); err != nil {
						b.Fatal(err)
					}
					took[j] = append(took[j], time.Since(began))
				}
			}
			slices.Sort(took[0])
			slices.Sort(took[1])
			bare, own := took[0][len(took[0])/2], took[1][len(took[1])/2]
			b.ReportMetric(float64(bare), "ns-SDK")
			b.ReportMetric(100*float64(own-bare)/float64(bare), "%more")
		})
	})
}

// The Decider allocates at most a tenth more than the SDK does by itself, and what
// it takes to parse a record, which is the same in every store.
func TestOwnCostInBytes(t *testing.T) {
	parse := allocated(t, func() error { _, err := record.Unmarshal("here", []byte(rec)); return err })
	newCalls(t).each(func(name string, bare, own func() error) {
		b, o := allocated(t, bare), allocated(t, own)
		t.Logf("%s: %d bytes, of which the SDK's %d: %.1f%% more; parsing takes %d", name, o, b, 100*float64(o-b)/float64(b), parse)
		if o > b+b/10 {
			t.Errorf("%s: %d bytes, the SDK alone takes %d", name, o, b)
		}
	})
}

// allocated returns the bytes that a call allocates, server and all.
func allocated(t testing.TB, call func() error) int64 {
	t.Helper()
	const n = 300
	var before, after runtime.MemStats
	for i := range 2 * n {
		if i == n {
			runtime.ReadMemStats(&before)
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc-before.TotalAlloc) / n
}

// A record of a candidate with two addresses is short.
func TestRecordSize(t *testing.T) {
	server, got := newFake(), []byte(nil)
	d := azblob.NewDecider(inProcess(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(got))
		server.ServeHTTP(w, r)
	}), nil), containerName, "one", nil)
	e := &leaderelection.RaceEntry{
		LeaderID: "worker-1.batch.example.com", HostPort: []string{"10.20.30.40:8443", "[fd00:1234:5678::40]:8443"},
		TermExpiry: time.Now(), TermLength: 15 * time.Second, ElectionNumber: 1 << 40, Extension: 1 << 40, Incarnation: strings.Repeat("A", 26),
	}
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if n := len(got); n >= 600 || !bytes.HasPrefix(got, []byte(`{"leaderelection"`)) {
		t.Errorf("%d bytes: %s", n, got)
	}
}
