package objecttest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/object"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// Failure is an error that a server sends.
type Failure struct {
	Status int
	Code   string // if the store's errors have one
}

// Script is a server that has one object, if any, and fails as it is told.
type Script struct {
	*Server
	Metadata map[string]string                            // of the object; nil: there is none
	Look     func(w http.ResponseWriter, r *http.Request) // answers each look in its place; nil: it is answered truly
	Fail     func(write int) Failure                      // of the write of this number; zero or nil: it is accepted
	Looks    int
	Writes   []*http.Request
}

// Server is how a store's server talks, on HTTP.
type Server struct {
	// New returns the object k, by a client without retries. It must be a Raiser. Imitation says that the
	// server is not the vendor's.
	New func(t *testing.T, rt http.RoundTripper, imitation bool) Object
	// Describe is the answer that tells of the object, to a look, or to a write with this body.
	Describe func(w http.ResponseWriter, r *http.Request, body []byte, metadata map[string]string)
	// Refuse is an answer that tells of a failure, and Missing the one that tells of no object.
	Refuse  func(w http.ResponseWriter, f Failure)
	Missing Failure
	// Failures are those of a write; true: the write is tried again.
	Failures map[Failure]bool
	// Unknown are answers to a look that do not tell what there is.
	Unknown map[string]http.HandlerFunc
	// Condition is the version that a write is conditional on: Seen is the one of Describe, Never one that
	// no object has.
	Condition   func(*http.Request) string
	Seen, Never string
}

// RoundTrip implements http.RoundTripper.
func (s *Script) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if look := r.Method == http.MethodGet || r.Method == http.MethodHead; look {
		switch s.Looks++; {
		case s.Look != nil:
			s.Look(w, r)
		case s.Metadata == nil:
			s.Refuse(w, s.Missing)
		default:
			s.Describe(w, r, nil, s.Metadata)
		}
	} else if err := s.write(w, r); err != nil {
		return nil, err
	}
	a := w.Result()
	a.Request = r
	return a, nil
}

func (s *Script) write(w http.ResponseWriter, r *http.Request) error {
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return err
		}
	}
	sent := r.Clone(r.Context())
	sent.Body = io.NopCloser(strings.NewReader(string(body)))
	s.Writes = append(s.Writes, sent)
	if s.Fail != nil {
		if f := s.Fail(len(s.Writes)); f != (Failure{}) {
			s.Refuse(w, f)
			return nil
		}
	}
	s.Metadata = map[string]string{}
	for _, name := range []string{"team", object.TokenName, object.WriteName} {
		if v := metadata(r.Header, body, name); v != "" {
			s.Metadata[name] = v
		}
	}
	s.Describe(w, r, body, s.Metadata)
	return nil
}

// Sent is what the write of this number, from 0, has under a name of the metadata.
func (s *Script) Sent(write int, name string) string {
	r := s.Writes[write]
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return metadata(r.Header, body, name)
}

// first fails the first write.
func first(f Failure) func(int) Failure {
	return func(write int) Failure {
		if write == 1 {
			return f
		}
		return Failure{}
	}
}

// RunScripts runs what is shown on a server that does as it is told.
func RunScripts(t *testing.T, server *Server) {
	token := fencetest.Orders(3)
	put := func(t *testing.T, s *Script, imitation bool) error {
		s.Server = server
		return server.New(t, s, imitation).Put(t.Context(), token, "x")
	}
	raise := func(t *testing.T, s *Script, imitation bool) error {
		s.Server = server
		return server.New(t, s, imitation).(Raiser).Raise(t.Context(), token)
	}
	there := func() map[string]string { return map[string]string{"team": "a", object.TokenName: "orders:2"} }

	// Only a refused condition is tried again; another failure is looked into once.
	t.Run("WhatIsTriedAgain", func(t *testing.T) {
		for f, again := range server.Failures {
			s := &Script{Fail: first(f)}
			err := put(t, s, false)
			if got := len(s.Writes) == 2; got != again || (err == nil) != again || s.Looks != 2 || errors.Is(err, fence.ErrStale) {
				t.Errorf("%v: written %d times, after %d looks: %v", f, len(s.Writes), s.Looks, err)
			}
		}
	})
	// If it is not known what there is, or something else answers, nothing is written.
	t.Run("NothingIsWrittenBlindly", func(t *testing.T) {
		for name, look := range server.Unknown {
			s := &Script{Look: look}
			if err := put(t, s, false); err == nil || errors.Is(err, fence.ErrStale) || len(s.Writes) > 0 {
				t.Errorf("%s: %v, written %d times", name, err, len(s.Writes))
			}
		}
	})
	// Raising a fence keeps the rest of the metadata; it needs an object, also if that is deleted in between.
	t.Run("RaiseKeepsTheMetadata", func(t *testing.T) {
		s := &Script{Metadata: there()}
		if err := raise(t, s, false); err != nil || len(s.Writes) != 1 {
			t.Fatalf("%v, written %d times", err, len(s.Writes))
		}
		if team, fence, at := s.Sent(0, "team"), s.Sent(0, object.TokenName), server.Condition(s.Writes[0]); team != "a" || fence != "orders:3" || at != server.Seen {
			t.Errorf("written with team %q and fence %q, on condition of %s", team, fence, at)
		}
		s = &Script{Metadata: there()}
		s.Fail = func(int) Failure { s.Metadata = nil; return server.Missing }
		if err := raise(t, s, false); err == nil || !strings.Contains(err.Error(), "there is no such object") {
			t.Errorf("an object that goes: %v", err)
		}
	})
	// Of a server that is not the vendor's a refusal is seen before a fence is raised there: one that takes no
	// notice of conditions keeps nobody out.
	t.Run("Imitation", func(t *testing.T) {
		for name, write := range map[string]func(*testing.T, *Script, bool) error{"Put": put, "Raise": raise} {
			s := &Script{Metadata: there()}
			if err := write(t, s, true); err == nil || !strings.Contains(err.Error(), "takes no notice of conditions") || len(s.Writes) != 1 {
				t.Fatalf("%s: %v, written %d times", name, err, len(s.Writes))
			}
			if fence, at := s.Sent(0, object.TokenName), server.Condition(s.Writes[0]); fence != "orders:2" || at != server.Never {
				t.Errorf("%s: asked to refuse the fence %q on condition of %s", name, fence, at)
			}
		}
		var refused Failure
		for f, again := range server.Failures {
			if again && f != server.Missing {
				refused = f
			}
		}
		s := &Script{Metadata: there(), Fail: first(refused)}
		if err := put(t, s, true); err != nil || len(s.Writes) != 2 {
			t.Errorf("a sound one: %v, written %d times", err, len(s.Writes))
		}
	})
}

// Wire is a http.RoundTripper that breaks when told to, and keeps a list of the
// tokens of accepted writes in the server's order: writes go one at a time.
type Wire struct {
	http.Transport

	order sync.Mutex // held during a write
	mu    sync.Mutex
	n     int
	list  []string
	hook  func()
	loss  loss
}

// loss is what befalls writes.
type loss struct {
	answers  int    // so many are carried out, and their senders do not learn that
	then     func() // called when the first of them was
	requests bool   // none arrives
	each     func() // called with each that does not
}

// sent is how many requests there were.
func (w *Wire) sent() int { w.mu.Lock(); defer w.mu.Unlock(); return w.n }

// accepted are the tokens of the writes that were.
func (w *Wire) accepted() []string { w.mu.Lock(); defer w.mu.Unlock(); return w.list }

// beforeWrite calls f before the next write is sent.
func (w *Wire) beforeWrite(f func()) { w.mu.Lock(); defer w.mu.Unlock(); w.hook = f }

func (w *Wire) lose(l loss) { w.mu.Lock(); defer w.mu.Unlock(); w.loss = l }

// errReset is a connection that broke.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// RoundTrip implements http.RoundTripper.
func (w *Wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.n++
	w.mu.Unlock()
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete {
		return w.Transport.RoundTrip(r)
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	hook, l := w.begin(r)
	if hook != nil {
		hook()
	}
	if l.requests {
		l.each()
		return nil, errReset
	}
	a, err := w.write(r, body)
	if err != nil || l.answers == 0 {
		return a, err
	}
	a.Body.Close()
	if l.then != nil {
		l.then()
	}
	return nil, errReset
}

// begin takes what is to happen to the next write. A write that must be refused does not count.
func (w *Wire) begin(r *http.Request) (func(), loss) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Header.Get("If-Match") == object.NoETag && w.loss.answers == 0 && !w.loss.requests {
		return nil, loss{}
	}
	hook, l := w.hook, w.loss
	w.hook = nil
	if w.loss.answers > 0 {
		w.loss.answers, w.loss.then = w.loss.answers-1, nil
	}
	return hook, l
}

func (w *Wire) write(r *http.Request, body []byte) (*http.Response, error) {
	w.order.Lock()
	defer w.order.Unlock()
	a, err := w.Transport.RoundTrip(r)
	if err == nil && a.StatusCode < 300 {
		w.mu.Lock()
		w.list = append(w.list, metadata(r.Header, body, object.TokenName))
		w.mu.Unlock()
	}
	return a, err
}

// metadata finds what a write has under this name, in its headers, or in its body, as JSON.
func metadata(h http.Header, body []byte, name string) string {
	for k, v := range h {
		if strings.HasSuffix(strings.ToLower(k), "-meta-"+name) {
			return v[0]
		}
	}
	if m := regexp.MustCompile(`"` + name + `":\s*"([^"]*)"`).FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return ""
}
