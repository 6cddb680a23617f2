//go:build go1.25

package leaderelection_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// webStore is the HTTP server of Example_writeADecider: GET and conditional PUT,
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
