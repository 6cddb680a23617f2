package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"go.uber.org/goleak"
	"google.golang.org/api/option"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/sim/overhttp"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestMain(m *testing.M) {
	proctest.Main(gcs.Open)
	// Idle connections to servers that have ended linger.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Three processes on the emulator: one leader killed, one stopped past its term,
// one cut off. See proctest for what is checked.
func TestProcesses(t *testing.T) {
	stores.Nightly(t, "real processes elect by the wall clock")
	server := stores.FakeGCS(t, bucket)
	proctest.Run(t, proctest.Options{
		Address:  "gs://" + bucket + "/processes?anonymous=true&endpoint=" + server,
		Upstream: strings.TrimPrefix(server, "http://"),
	})
}

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

// put writes an object, as a tool does that knows of no election.
func put(t testing.TB, o *storage.ObjectHandle, content string) {
	t.Helper()
	w := o.NewWriter(t.Context())
	_, err := io.WriteString(w, content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

// get reads an object.
func get(t testing.TB, o *storage.ObjectHandle) string {
	t.Helper()
	r, err := o.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// front starts a server that changes requests, and passes them on to the emulator.
func front(t testing.TB, change func(*httputil.ProxyRequest)) (address string) {
	t.Helper()
	server, err := url.Parse(stores.FakeGCS(t, bucket))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server); change(r) }})
	t.Cleanup(s.Close)
	return s.URL
}

// An object that soft delete has kept, and somebody restores, is a new generation of old content.
// A write over a later version is refused, and the record goes on from the restored one.
func TestSoftDeletedIsRestored(t *testing.T) {
	c := client(t, stores.FakeGCS(t, bucket))
	d, object := gcs.NewDecider(c, bucket, "restored", nil), c.Bucket(bucket).Object("restored")
	first := feedtest.Write(t, d, 1, nil)
	old := get(t, object)
	later := feedtest.Write(t, d, 3, feedtest.Write(t, d, 2, first))
	put(t, object, old)
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
	written := feedtest.Write(t, d, 1, nil)
	e := feedtest.Read(t, d)
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
	e := feedtest.State(1, nil)
	for _, size := range []int{100, 190 << 10, 196_350} { // as base64: up to the limit
		e.ConnectionParams = make([]byte, size)
		token, err := d.WriteEntry(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if read := feedtest.Read(t, d); len(read.ConnectionParams) != size {
			t.Fatalf("%d bytes: %+v", size, read)
		}
		e.Token = token
	}
	if sent != 6 {
		t.Errorf("%d requests for three writes and three reads", sent)
	}
}

// Nothing that something else answers is believed. Whole campaigns are held to that
// beside the emulator, in internal/test/stores/servers/fakegcs.
func TestDisbelieves(t *testing.T) {
	url := stores.FakeGCS(t, bucket)
	tr := new(http.Transport)
	defer tr.CloseIdleConnections()
	overhttp.Disbelieves(t, overhttp.Store{
		Decider: func(c *http.Client) leaderelection.RaceDecider {
			client, err := storage.NewClient(t.Context(), option.WithEndpoint(url+"/storage/v1/"), storage.WithJSONReads(), option.WithHTTPClient(c))
			if err != nil {
				t.Fatal(err)
			}
			return gcs.NewDecider(client, bucket, "one", nil)
		},
		Writes: func(r *http.Request) bool { return r.Method == http.MethodPost },
	}, tr)
}

// Behind an endpoint may be anything: one that takes no notice of the condition has nobody
// lead, and one that does is asked once.
func TestEndpointProvesItself(t *testing.T) {
	for name, deaf := range map[string]func(generation string) bool{
		"Sound":            func(string) bool { return false },
		"DeafToGeneration": func(generation string) bool { return generation != "0" },
		"DeafToNone":       func(generation string) bool { return generation == "0" },
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			d := feedtest.Opened(t, gcs.Open, "gs://"+bucket+"/one?anonymous=true&endpoint="+front(t, func(r *httputil.ProxyRequest) {
				if r.In.Method != http.MethodPost {
					return
				}
				writes++
				if q := r.Out.URL.Query(); deaf(q.Get("ifGenerationMatch")) {
					q.Del("ifGenerationMatch")
					r.Out.URL.RawQuery = q.Encode()
				}
			}))
			token, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
			if name != "Sound" {
				feedtest.Permanent(t, err, "no notice of conditions")
				feedtest.Permanent(t, feedtest.ReadError(t, d))
				return
			}
			if err != nil || writes != 3 {
				t.Fatalf("%v, after %d writes, want 3", err, writes)
			}
			if err := feedtest.WriteError(t, d, 2, token); err != nil || writes != 4 {
				t.Errorf("%v, after %d writes, want 4", err, writes)
			}
		})
	}
}

// The client that Open makes leaves a connection that has died without a word, though the server
// speaks HTTP/2.
func TestAbandonedConnection(t *testing.T) {
	relay := stores.NewRelay(t, stores.HTTP2Before(t, stores.FakeGCS(t, bucket)))
	d := feedtest.Opened(t, gcs.Open, "gs://"+bucket+"/abandoned?anonymous=true&endpoint="+url.QueryEscape("https://"+relay.Addr))
	feedtest.Abandons(t, d, relay.Swallow)
}

// One object of a bucket elects the leader of a batch job.
func Example() {
	ctx := context.Background()
	client, err := storage.NewClient(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	config := leaderelection.Config{Decider: gcs.NewDecider(client, "my-bucket", "elections/nightly", nil), LeaderID: "worker-1"}
	log.Print(config.Run(ctx, func(ctx context.Context, view *leaderelection.TimeView) error {
		return ctx.Err() // work, and ask view.ValueInFuture() before each act
	}))
}
