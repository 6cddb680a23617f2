//go:build go1.25

package decidertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/record"
)

func TestMain(m *testing.M) {
	Main(func(_ context.Context, address string) (leaderelection.RaceDecider, error) {
		kind, path, _ := strings.Cut(address, ":")
		if kind == "nowhere" {
			return nil, errors.New("there is no such place")
		}
		return &shelf{path: path, locks: kind == "locks"}, nil
	})
	os.Exit(m.Run())
}

// shelf is a decider on a file, which checks and writes under a lock: one of the process
// or one of the machine.
type shelf struct {
	path  string
	locks bool // of the machine
}

var processLock sync.Mutex

type sum [sha256.Size]byte

func (sum) CommitTS() (zero time.Time) { return zero }

func (s *shelf) ReadCurrent(ctx context.Context) (*entry, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return &entry{Token: sum{}}, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := record.Unmarshal(s.path, data)
	if err == nil {
		e.Token = sum(sha256.Sum256(data))
	}
	return e, err
}

func (s *shelf) WriteEntry(ctx context.Context, e *entry) (token, error) {
	processLock.Lock()
	defer processLock.Unlock()
	if s.locks {
		lock := s.path + ".lock"
		for os.Mkdir(lock, 0o700) != nil && ctx.Err() == nil {
			pause() // somebody else has it
		}
		defer os.Remove(lock)
	}
	now, err := s.ReadCurrent(ctx)
	if err != nil {
		return nil, err
	}
	if was, _ := e.Token.(sum); was != now.Token {
		return nil, leaderelection.ErrLostRace
	}
	data, err := record.Marshal(e)
	if err != nil {
		return nil, err
	}
	temporary, err := os.CreateTemp(filepath.Dir(s.path), "new")
	if err != nil {
		return nil, err
	}
	defer temporary.Close()
	if _, err := temporary.Write(data); err != nil {
		return nil, err
	}
	pause()
	return sum(sha256.Sum256(data)), os.Rename(temporary.Name(), s.path)
}

// A check under a lock of the process holds nobody back in another.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: real processes and disks")
	}
	for kind, says := range map[string]string{"locks": "", "trusts": "older record", "nowhere": "there is no such place"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // one waits for its patience to end
			testProcesses(t, kind, says)
		})
	}
}

func testProcesses(t *testing.T, kind, says string) {
	o := Options{Patience: 10 * time.Second, Address: func(d leaderelection.RaceDecider) string { return kind + ":" + d.(*shelf).path }}
	if kind == "locks" {
		o.Patience = time.Minute
	}
	got := failuresWith(t, o, "Processes/NoUpdateIsLost", func(t testing.TB) func() leaderelection.RaceDecider {
		path := filepath.Join(t.TempDir(), "election")
		return func() leaderelection.RaceDecider { return &shelf{path: path, locks: kind == "locks"} }
	})
	if all := strings.Join(got, "\n"); (len(got) > 0) != (says != "") || !strings.Contains(all, says) {
		t.Errorf("%s: %s; want %q", kind, all, says)
	}
}

// web is a decider on an HTTP server that has ETags. It believes any answer of success, or
// only one with an ETag.
type web struct {
	client   *http.Client
	url      string
	trusting bool
}

type etag string

func (etag) CommitTS() (zero time.Time) { return zero }

func (w *web) do(ctx context.Context, method, header, value string, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set(header, value)
	a, err := w.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer a.Body.Close()
	got, err := io.ReadAll(a.Body)
	if err == nil && !w.trusting && a.StatusCode < 300 && a.Header.Get("ETag") == "" {
		err = errors.New("the answer has no ETag")
	}
	return a, got, err
}

func (w *web) ReadCurrent(ctx context.Context) (*entry, error) {
	a, body, err := w.do(ctx, http.MethodGet, "Accept", "*/*", nil)
	switch {
	case err != nil:
		return nil, err
	case a.StatusCode == http.StatusNotFound, w.trusting && len(body) == 0:
		return &entry{Token: etag("")}, nil
	}
	e, err := record.Unmarshal(w.url, body)
	if err == nil {
		e.Token = etag(a.Header.Get("ETag"))
	}
	return e, err
}

func (w *web) WriteEntry(ctx context.Context, e *entry) (token, error) {
	body, err := record.Marshal(e)
	if err != nil {
		return nil, err
	}
	was, _ := e.Token.(etag)
	header, value := "If-Match", string(was)
	if was == "" {
		header, value = "If-None-Match", "*"
	}
	a, _, err := w.do(ctx, http.MethodPut, header, value, body)
	switch {
	case err != nil:
		return nil, err
	case a.StatusCode < 300:
		return etag(a.Header.Get("ETag")), nil
	case a.StatusCode == http.StatusPreconditionFailed:
		return nil, leaderelection.ErrLostRace
	}
	return nil, errors.New(a.Status)
}

// webServer has one object.
type webServer struct {
	mu   sync.Mutex
	data []byte
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	tag := func() string { return fmt.Sprintf("%x", sha256.Sum256(s.data)) }
	switch {
	case r.Method == http.MethodGet && s.data == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", tag())
		_, _ = w.Write(s.data)
	case r.Header.Get("If-None-Match") == "*" && s.data != nil, r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Match") != tag():
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		s.data = body
		w.Header().Set("ETag", tag())
	}
}

// A decider that takes any answer of success for one of its store is found out, and so is
// one whose client is not given the Proxy.
func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		trusting, direct bool
		says             []string
	}{
		"proves":   {},
		"trusting": {trusting: true, says: []string{"WriteEntry returned the token", "Empty200", "Page201", "writes are answered", "ReadCurrent returned"}},
		"direct":   {direct: true, says: []string{"give it to the client of each handle"}},
	} {
		server := httptest.NewServer(&webServer{})
		defer server.Close()
		proxy := &Proxy{Next: server.Client().Transport}
		client := &http.Client{Transport: proxy}
		if c.direct {
			client = server.Client()
		}
		got := failuresWith(t, Options{Patience: 5 * time.Second, Proxy: proxy}, "Proxy/IsNotBelieved", func(testing.TB) func() leaderelection.RaceDecider {
			return func() leaderelection.RaceDecider { return &web{client, server.URL, c.trusting} }
		})
		all := strings.Join(got, "\n")
		if (len(got) > 0) != (c.says != nil) {
			t.Errorf("%s: %s", name, all)
		}
		for _, says := range c.says {
			if !strings.Contains(all, says) {
				t.Errorf("%s: it does not say %q: %s", name, says, all)
			}
		}
	}
}
