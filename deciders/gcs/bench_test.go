//go:build !race

// Under the race detector neither time nor allocated bytes mean anything.

package gcs_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"cloud.google.com/go/storage"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/internal/record"
)

// cannedServer answers reads with a record of a candidate with two addresses, and
// writes with what a write is answered with. It is as little of a server as can be,
// so that what the client does stands out.
func cannedServer(t testing.TB) (url string, rec []byte) {
	t.Helper()
	rec = []byte(`{"leaderelection":1,"leader_id":"worker-1.batch.example.com","host_port":["10.20.30.40:8443","[fd00:1234:5678::40]:8443"],"term_expiry":"2026-11-21T11:24:05.123456789Z","term_length":"15s","election_number":7,"extension":1234,"incarnation":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"storage#object","bucket":"elections","name":"one","generation":"2","updated":"2026-11-21T11:24:05.123Z"}`)
			return
		}
		w.Header().Set("X-Goog-Generation", "1")
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 11:24:05 GMT")
		_, _ = w.Write(rec)
	}))
	t.Cleanup(s.Close)
	return s.URL, rec
}

// calls are what is compared: a call of the Decider, and the same request made
// with nothing but the SDK.
type calls struct{ read, write, bareRead, bareWrite func() error }

func newCalls(t testing.TB) calls {
	url, rec := cannedServer(t)
	c, ctx := client(t, url), context.Background()
	d := gcs.NewDecider(c, bucket, "one", nil)
	e, err := d.ReadCurrent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Bucket(bucket).Object("one").Retryer(storage.WithPolicy(storage.RetryNever))
	return calls{
		read:  func() error { _, err := d.ReadCurrent(ctx); return err },
		write: func() error { _, err := d.WriteEntry(ctx, e); return err },
		bareRead: func() error {
			r, err := o.NewReader(ctx)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.ReadAll(r)
			return err
		},
		bareWrite: func() error {
			w := o.If(storage.Conditions{GenerationMatch: 1}).NewWriter(ctx)
			w.ContentType, w.CacheControl, w.ChunkSize = "application/json", "no-store", 256<<10
			w.SendCRC32C, w.CRC32C = true, crc32.Checksum(rec, crc32.MakeTable(crc32.Castagnoli))
			if _, err := io.Copy(w, bytes.NewReader(rec)); err != nil {
				return err
			}
			return w.Close()
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
	_, rec := cannedServer(t)
	parse := allocated(t, func() error { _, err := record.Unmarshal("here", rec); return err })
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
	var got string
	d := gcs.NewDecider(client(t, receive(t, &got, new(string))), bucket, "one", nil)
	e := &leaderelection.RaceEntry{
		LeaderID: "worker-1.batch.example.com", HostPort: []string{"10.20.30.40:8443", "[fd00:1234:5678::40]:8443"},
		TermExpiry: time.Now(), TermLength: 15 * time.Second, ElectionNumber: 1 << 40, Extension: 1 << 40, Incarnation: fmt.Sprintf("%026d", 1),
	}
	if _, err := d.WriteEntry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut([]byte(got), []byte(`{"leaderelection"`))
	rec, _, _ := bytes.Cut(body, []byte("\r\n"))
	if len(rec) < 100 || len(rec) >= 600 {
		t.Errorf("%d bytes: %s", len(rec), rec)
	}
}
