//go:build go1.25

package decidertest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/decidertest"
)

// webStore is the HTTP server of Example: GET and conditional PUT,
// with ETags.
type webStore struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func newWebStore() *webStore { return &webStore{objects: map[string][]byte{}} }

func (s *webStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, exists := s.objects[r.URL.Path]
	tag := func(b []byte) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(b))) }
	switch r.Method {
	case http.MethodGet:
		if !exists {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", tag(old))
		_, _ = w.Write(old)
	case http.MethodPut:
		if match := r.Header.Get("If-Match"); match != "" && (!exists || match != tag(old)) ||
			r.Header.Get("If-None-Match") == "*" && exists {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.objects[r.URL.Path] = body
		w.Header().Set("ETag", tag(body))
	}
}

// The example keeps the contract.
func TestExampleDecider(t *testing.T) {
	server := httptest.NewServer(newWebStore())
	defer server.Close()
	n := 0
	decidertest.Run(t, func(testing.TB) func() leaderelection.RaceDecider {
		n++
		url := fmt.Sprintf("%s/%d", server.URL, n)
		return func() leaderelection.RaceDecider { return webDecider{server.Client(), url} }
	}, &decidertest.Options{Rounds: 3, Writers: 8})
}

// A page that does not come from the store proves nothing.
func TestExampleDeciderIsNotFooled(t *testing.T) {
	var fooled atomic.Bool
	store := newWebStore()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fooled.Load() || r.Method == http.MethodGet {
			store.ServeHTTP(w, r) // else 200, and an empty page
		}
	}))
	defer server.Close()
	d := webDecider{server.Client(), server.URL + "/election"}
	e, err := d.ReadCurrent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e.LeaderID, e.ElectionNumber, e.TermExpiry, e.Incarnation = "a", 1, time.Now(), "i"
	for _, fool := range []bool{true, false, true} {
		fooled.Store(fool)
		token, err := d.WriteEntry(t.Context(), e)
		if fool != (err != nil) || errors.Is(err, leaderelection.ErrLostRace) {
			t.Fatalf("fooled %v: %v, %v", fool, token, err)
		}
		if !fool {
			e.Token = token
			e.Extension++
		}
	}
}

// believer takes any answer for one of its store: for the success of a write, or for an empty election.
type believer struct{ webDecider }

func (d believer) ReadCurrent(ctx context.Context) (*leaderelection.RaceEntry, error) {
	e, err := d.webDecider.ReadCurrent(ctx)
	if err != nil {
		return &leaderelection.RaceEntry{Token: etag("")}, ctx.Err()
	}
	return e, nil
}

func (d believer) WriteEntry(ctx context.Context, e *leaderelection.RaceEntry) (leaderelection.LeaderToken, error) {
	token, err := d.webDecider.WriteEntry(ctx, e)
	if err != nil && !errors.Is(err, leaderelection.ErrLostRace) {
		return etag(""), ctx.Err()
	}
	return token, err
}

// A decider that takes any answer for one of its store is found out, and so is one whose client
// is not given the Proxy.
func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		believes, direct bool
		says             []string
	}{
		"proves":   {},
		"believes": {believes: true, says: []string{"WriteEntry returned the token", "Empty200", "Page201", "writes are answered", "ReadCurrent returned"}},
		"direct":   {direct: true, says: []string{"give it to the client of each handle"}},
	} {
		server := httptest.NewServer(newWebStore())
		defer server.Close()
		proxy := &decidertest.Proxy{Next: server.Client().Transport}
		d := webDecider{&http.Client{Transport: proxy}, server.URL + "/election"}
		if c.direct {
			d.client = server.Client()
		}
		got := decidertest.FailuresWith(t, decidertest.Options{Patience: 5 * time.Second, Proxy: proxy}, "Proxy/IsNotBelieved", func(testing.TB) func() leaderelection.RaceDecider {
			return func() leaderelection.RaceDecider {
				if c.believes {
					return believer{d}
				}
				return d
			}
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
