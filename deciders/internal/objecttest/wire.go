package objecttest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/c8e606e4/leaderelection/deciders/internal/object"
)

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
