//go:build go1.26

package fence_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
)

// resource is a server that counts what reaches it, and a client of it whose dials
// can be held up.
type resource struct {
	server  *httptest.Server
	base    *http.Transport
	client  *http.Client
	reached atomic.Int32
	dial    func() // called before each dial
}

// lazyConn takes its time to close: what can be sent until then is sent.
type lazyConn struct{ net.Conn }

func (c *lazyConn) Close() error {
	for range 10_000 {
		runtime.Gosched()
	}
	return c.Conn.Close()
}

func newResource(t *testing.T, h2 bool, h http.HandlerFunc) *resource {
	t.Helper()
	r := &resource{dial: func() {}}
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.reached.Add(1)
		h(w, req)
	}))
	if h2 {
		r.server.EnableHTTP2 = true
		r.server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1}
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	t.Cleanup(r.server.Close)
	r.base = r.server.Client().Transport.(*http.Transport).Clone()
	r.base.DialContext = func(_ context.Context, network, addr string) (net.Conn, error) {
		r.dial()
		conn, err := net.Dial(network, r.server.Listener.Addr().String())
		return &lazyConn{conn}, err
	}
	t.Cleanup(r.base.CloseIdleConnections)
	r.client = &http.Client{Transport: &fence.Transport{Base: r.base}}
	return r
}

func (r *resource) do(ctx context.Context, method string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, r.server.URL, body)
	if err != nil {
		return err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// What waits for a connection when the view ends does not go out, whether it has a
// body or not; and a connection that others share stays as it is.
func TestNothingIsSentThatWaitedForAConnection(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		for _, body := range []string{"", "payload"} {
			t.Run(name+" "+body, func(t *testing.T) {
				for range 30 { // HTTP/1 may by chance see that it is not to send before it does
					gate, end := fencetest.Lead(t)
					r := newResource(t, h2, func(http.ResponseWriter, *http.Request) {})
					r.dial = end
					var reader io.Reader
					if body != "" {
						reader = strings.NewReader(body)
					}
					if err := r.do(fence.WithGate(t.Context(), gate), http.MethodDelete, reader); !errors.Is(err, leaderelection.ErrNotLeading) {
						t.Errorf("it was told %v", err)
					}
					// Whatever was sent has arrived when a later one on the same way has.
					r.dial = func() {}
					next, _ := fencetest.Lead(t)
					if err := r.do(fence.WithGate(t.Context(), next), http.MethodDelete, nil); err != nil {
						t.Error(err)
					}
					if n := r.reached.Load(); n != 1 {
						t.Fatalf("%d requests arrived, want the next leader's alone", n)
					}
				}
			})
		}
	}
}

// On an idle connection nothing goes out late either: one that the server has closed
// makes net/http dial anew.
func TestNothingIsSentByNetHTTPsOwnRetry(t *testing.T) {
	gate, end := fencetest.Lead(t)
	ctx := fence.WithGate(t.Context(), gate)
	r := newResource(t, false, func(http.ResponseWriter, *http.Request) {})
	if err := r.do(ctx, http.MethodDelete, nil); err != nil {
		t.Fatal(err)
	}
	r.server.CloseClientConnections()
	r.dial = end
	if err := r.do(ctx, http.MethodDelete, nil); err == nil || r.reached.Load() != 1 {
		t.Errorf("%v; %d requests arrived", err, r.reached.Load())
	}
}

// On HTTP/2 a request may wait for its turn on a connection: not longer than the view.
func TestNothingIsSentThatWaitedForItsTurn(t *testing.T) {
	gate, end := fencetest.Lead(t)
	ctx := fence.WithGate(t.Context(), gate)
	busy, done := make(chan struct{}), make(chan struct{})
	r := newResource(t, true, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			busy <- struct{}{}
			<-done
		}
	})
	r.base.MaxConnsPerHost = 1
	r.base.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	if err := r.do(ctx, http.MethodPut, nil); err != nil { // from now on the client knows that there is one turn
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wrote := make(chan struct{}) // closed after Transport's own hook: the server may be quicker than that
	sent := &httptrace.ClientTrace{WroteHeaders: func() { close(wrote) }}
	wg.Go(func() {
		if err := r.do(httptrace.WithClientTrace(ctx, sent), http.MethodDelete, nil); err != nil { // sent in time: its answer is waited for
			t.Error(err)
		}
	})
	<-busy
	<-wrote
	late, waits := make(chan error), make(chan struct{})
	said := sync.OnceFunc(func() { close(waits) })
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { said() }}
	wg.Go(func() { late <- r.do(httptrace.WithClientTrace(ctx, trace), http.MethodDelete, nil) })
	<-waits
	end()
	if err := <-late; !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("it was told %v", err)
	}
	close(done)
	wg.Wait()
	if n := r.reached.Load(); n != 2 {
		t.Errorf("%d requests arrived", n)
	}
}

// A body that waits while the view ends is not sent to its end, even if all the rest comes at once
// and says so: no whole request arrives.
func TestNoBodyIsCompletedLate(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			gate, end := fencetest.Lead(t)
			begun, whole := make(chan struct{}), make(chan error, 1)
			r := newResource(t, h2, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.ReadFull(r.Body, make([]byte, 5))
				close(begun)
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				whole <- err
			})
			rest := readerFunc(func(p []byte) (int, error) {
				<-begun
				end()
				return copy(p, "second"), io.EOF
			})
			if err := r.do(fence.WithGate(t.Context(), gate), http.MethodPut, io.MultiReader(strings.NewReader("first"), rest)); !errors.Is(err, leaderelection.ErrNotLeading) {
				t.Errorf("it was told %v", err)
			}
			if err := <-whole; err == nil {
				t.Error("the request arrived as a whole")
			}
		})
	}
}
