package fencegcs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/gcs"
	"github.com/c8e606e4/leaderelection/deciders/gcs/fencegcs"
	"github.com/c8e606e4/leaderelection/deciders/internal/objecttest"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

func TestMain(m *testing.M) {
	// The client's own, which it starts once and never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const bucket = "orders"

// object returns one of the emulator at url, by rt or by connections of its own. Its client repeats what
// fails as by default, without long pauses, or not at all.
func object(t *testing.T, url, name string, rt http.RoundTripper, retries bool) *storage.ObjectHandle {
	t.Helper()
	if rt == nil {
		tr := new(http.Transport)
		t.Cleanup(tr.CloseIdleConnections)
		rt = tr
	}
	c, err := storage.NewClient(t.Context(), option.WithEndpoint(url+"/storage/v1/"), option.WithoutAuthentication(),
		storage.WithJSONReads(), option.WithHTTPClient(&http.Client{Transport: rt}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetRetry(storage.WithBackoff(gax.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}))
	if !retries {
		c.SetRetry(storage.WithPolicy(storage.RetryNever))
	}
	return c.Bucket(bucket).Object(name)
}

type one struct{ *storage.ObjectHandle }

func (o one) Put(ctx context.Context, token fence.Token, content string) error {
	return fencegcs.Put(ctx, o.ObjectHandle, token, strings.NewReader(content), func(w *storage.Writer) {
		w.ContentType, w.Metadata = "text/plain", map[string]string{"team": "a", "FencingToken": "mine"}
	})
}

func (o one) Raise(ctx context.Context, token fence.Token) error {
	return fencegcs.Raise(ctx, o.ObjectHandle, token)
}

func (o one) Plain(ctx context.Context, content string, metadata map[string]string) error {
	w := o.NewWriter(ctx)
	w.Metadata = metadata
	_, err := io.WriteString(w, content)
	return errors.Join(err, w.Close())
}

func (o one) Read(ctx context.Context) (string, map[string]string, error) {
	a, err := o.Attrs(ctx)
	if err != nil {
		return "", nil, err
	}
	r, err := o.NewReader(ctx)
	if err != nil {
		return "", nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	return string(content), a.Metadata, err
}

func TestFakeGCS(t *testing.T) {
	url := metagenerations(t, stores.FakeGCS(t, bucket))
	for name, retries := range map[string]bool{"retries": true, "one attempt": false} {
		t.Run(name, func(t *testing.T) {
			objecttest.Run(t, func(t *testing.T, key string, rt http.RoundTripper) objecttest.Object {
				return one{object(t, url, name+"/"+key, rt, retries)}
			})
		})
	}
}

// What is more than the client sends in one request is written and repeated as
// well.
func TestLarge(t *testing.T) {
	o := object(t, stores.FakeGCS(t, bucket), "large", nil, true)
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	for n := range uint64(2) {
		err := fencegcs.Put(t.Context(), o, fencetest.Orders(n+1), bytes.NewReader(content), func(w *storage.Writer) { w.ChunkSize = 256 << 10 })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := fencegcs.Put(t.Context(), o, fencetest.Orders(1), bytes.NewReader(nil), nil); !errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
	if got, _, err := (one{o}).Read(t.Context()); got != string(content) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// A content that breaks off makes no object of what there was of it.
func TestBrokenContent(t *testing.T) {
	o := object(t, stores.FakeGCS(t, bucket), "broken", nil, true)
	if err := fencegcs.Put(t.Context(), o, fencetest.Orders(1), strings.NewReader("whole"), nil); err != nil {
		t.Fatal(err)
	}
	err := fencegcs.Put(t.Context(), o, fencetest.Orders(2), &broken{strings.NewReader("half of it")}, nil)
	if !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if got, m, err := (one{o}).Read(t.Context()); got != "whole" || m["fencingtoken"] != "orders:1" || err != nil {
		t.Errorf("%q %v %v", got, m, err)
	}
}

var errDisk = errors.New("the disk is gone")

type broken struct{ *strings.Reader }

func (b *broken) Read(p []byte) (int, error) {
	if b.Len() < 5 {
		return 0, errDisk
	}
	return b.Reader.Read(p[:min(len(p), 3)])
}

func (b *broken) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{b}) }

// A refused condition has another form with gRPC. The write looks again then, as with HTTP.
func TestRefusalsOfGRPC(t *testing.T) {
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Aborted} {
		s := &refusing{Script: objecttest.Script{Server: server()}, code: code}
		err := one{object(t, "http://gcs.example", "k", s, false)}.Put(t.Context(), fencetest.Orders(3), "x")
		if err != nil || s.Looks != 2 || len(s.Writes) != 1 {
			t.Errorf("%v: %v, %d looks, written %d times", code, err, s.Looks, len(s.Writes))
		}
	}
}

// refusing refuses the first write as gRPC does.
type refusing struct {
	objecttest.Script
	code codes.Code
}

func (s *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if code := s.code; r.Method == http.MethodPost && code != codes.OK {
		s.code = codes.OK
		return nil, status.Error(code, "said the server")
	}
	return s.Script.RoundTrip(r)
}

func TestNoBucket(t *testing.T) {
	err := fencegcs.Put(t.Context(), object(t, stores.FakeGCS(t), "k", nil, false), fencetest.Orders(1), strings.NewReader("x"), nil)
	if err == nil || !strings.Contains(err.Error(), "gs://orders/k") || errors.Is(err, fence.ErrStale) {
		t.Error(err)
	}
}

// metagenerations serves the emulator at target, whose objects have the
// metageneration 1 for ever, with what the real service does: a change of the
// metadata raises it, and ifMetagenerationMatch holds, as does ifGenerationMatch of
// such a change.
func metagenerations(t *testing.T, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	tr := new(http.Transport)
	p := httputil.NewSingleHostReverseProxy(u)
	p.Transport = tr
	s := httptest.NewServer(&counter{next: p, versions: make(map[string]version)})
	t.Cleanup(func() { s.Close(); tr.CloseIdleConnections() })
	return s.URL
}

type version struct {
	generation string
	meta       int
}

type counter struct {
	next     http.Handler
	mu       sync.Mutex
	versions map[string]version // of objects, by name
}

var nameInJSON = regexp.MustCompile(`"name":\s*"([^"]*)"`)

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	name := ""
	if _, after, ok := strings.Cut(r.URL.Path, "/o/"); ok {
		name = after
	} else if m := nameInJSON.FindSubmatch(body); m != nil {
		name = string(m[1])
	}
	v := c.versions[name]
	if c.refuses(r, v) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `{"error":{"code":412,"message":"conditionNotMet"}}`)
		return
	}
	rec := httptest.NewRecorder()
	c.next.ServeHTTP(rec, r)
	answer := rec.Body.Bytes()
	if rec.Code == http.StatusOK && r.Method != http.MethodGet {
		var o struct{ Generation string }
		_ = json.Unmarshal(answer, &o)
		if v.meta++; o.Generation != v.generation {
			v = version{o.Generation, 1}
		}
		c.versions[name] = v
	}
	answer = bytes.Replace(answer, []byte(`"metageneration":"1"`), []byte(`"metageneration":"`+strconv.Itoa(max(v.meta, 1))+`"`), 1)
	for k, vs := range rec.Header() {
		w.Header()[k] = vs
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(answer)
}

func (c *counter) refuses(r *http.Request, v version) bool {
	if v.meta == 0 {
		return false
	}
	meta := r.URL.Query().Get("ifMetagenerationMatch")
	if meta != "" && meta != strconv.Itoa(v.meta) {
		return true
	}
	return r.Method == http.MethodPatch && r.URL.Query().Get("ifGenerationMatch") != v.generation
}

// server is how Cloud Storage talks.
func server() *objecttest.Server {
	refuse := func(w http.ResponseWriter, f objecttest.Failure) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(f.Status)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":"by a test"}}`, f.Status)
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	fails := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, objecttest.Failure{Status: status}) }
	}
	return &objecttest.Server{
		New: func(t *testing.T, rt http.RoundTripper, imitation bool) objecttest.Object {
			if imitation {
				t.Setenv("STORAGE_EMULATOR_HOST", "gcs.example")
			}
			return one{object(t, "http://gcs.example", "k", rt, false)}
		},
		Describe: func(w http.ResponseWriter, r *http.Request, _ []byte, metadata map[string]string) {
			m, _ := json.Marshal(metadata)
			says(`{"name":"k","generation":"7","metageneration":"1","metadata":`+string(m)+`}`)(w, r)
		},
		Refuse:   refuse,
		Missing:  objecttest.Failure{Status: 404},
		Failures: map[objecttest.Failure]bool{{Status: 412}: true, {Status: 409}: true, {Status: 403}: false, {Status: 429}: false, {Status: 500}: false, {Status: 503}: false},
		Unknown: map[string]http.HandlerFunc{
			"no permission":  fails(403),
			"a failure":      fails(500),
			"another object": says(`{"name":"other","generation":"7","metageneration":"1"}`),
			"no generation":  says(`{"name":"k","metageneration":"1"}`),
			"something else": says(`{}`),
		},
		Condition: func(r *http.Request) string {
			q := r.URL.Query()
			return q.Get("ifGenerationMatch") + "/" + q.Get("ifMetagenerationMatch")
		},
		Seen: "7/1", Never: "1/1099511627776",
	}
}

func TestScripts(t *testing.T) { objecttest.RunScripts(t, server()) }

// The whole content fits into the buffer that the client can repeat it from, up to 16 MiB.
func TestTheBufferFits(t *testing.T) {
	const unit = 256 << 10
	for _, size := range []int{0, 1, unit - 1, unit, unit + 1, 3 * unit} {
		chunk := 0
		s := &objecttest.Script{Server: server()}
		err := fencegcs.Put(t.Context(), object(t, "http://gcs.example", "k", s, false), fencetest.Orders(3), strings.NewReader(strings.Repeat("x", size)), func(w *storage.Writer) { chunk = w.ChunkSize })
		if err != nil || len(s.Writes) != 1 || chunk <= size || chunk > size+unit || chunk%unit != 0 {
			t.Errorf("%d bytes: a buffer of %d, written %d times, %v", size, chunk, len(s.Writes), err)
		}
	}
}

// A leader that shuts the earlier ones out before it reads what it goes by.
func Example() {
	var client *storage.Client // as in the example of the decider
	state := client.Bucket("my-bucket").Object("orders/state.json")
	config := leaderelection.Config{Decider: gcs.NewDecider(client, "my-bucket", "elections/orders", nil), LeaderID: "web-1"}
	err := config.Run(context.Background(), func(ctx context.Context, view *leaderelection.TimeView) error {
		token, err := fence.Gate{View: view, Election: "orders"}.Token()
		if err == nil {
			err = fencegcs.Raise(ctx, state, token) // it fails if there is no such object yet
		}
		if err != nil {
			return err
		}
		// ... read the state, and work ...
		return fencegcs.Put(ctx, state, token, strings.NewReader(`{"open":17}`), nil)
	})
	if errors.Is(err, fence.ErrStale) {
		log.Print("another one leads: nothing was written")
	}
}
