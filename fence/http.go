package fence

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

// refusedHeader tells the writer that a refusal is the fence's, and which.
const refusedHeader = "Fencing-Refused"

// RequireOptions are the settings of [Require]. The zero value is right for most.
type RequireOptions struct {
	// Reads says that requests with a safe method (GET, HEAD, OPTIONS, TRACE) need a token as
	// well. If it is false they pass without a token, and a token that they have is judged.
	// The tokens of safe requests are not remembered.
	Reads bool
}

// refusals are the answers to a writer, by error.
var refusals = []struct {
	err    error
	status int
	word   string
}{
	{ErrStale, http.StatusConflict, "stale"},
	{ErrNoToken, http.StatusPreconditionRequired, "missing"},
	{ErrMalformed, http.StatusBadRequest, "malformed"},
	{ErrOtherElection, http.StatusBadRequest, "election"},
}

// Require returns a middleware that lets only requests with an admitted token through. Put it in
// front of the handlers of a resource. It answers:
//
//   - 409 if the token is stale;
//   - 428 if it is missing;
//   - 400 if it is malformed, if there are several, or if it is another election's;
//   - 503 if c cannot decide.
//
// Handlers get the token from TokenFrom, for the condition of their own writes.
//
// A token does not prove who has sent it: put authentication in front of Require. See the
// package's documentation.
func Require(c Checker, opts *RequireOptions) func(http.Handler) http.Handler {
	var o RequireOptions
	if opts != nil {
		o = *opts
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			values := r.Header[Header]
			judge := c.Check
			if safe(r.Method) {
				if !o.Reads && len(values) == 0 {
					next.ServeHTTP(w, r)
					return
				}
				judge = c.Peek
			}
			t, err := parseOne(values)
			if err == nil {
				err = judge(r.Context(), t)
			}
			if err != nil {
				refuse(w, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(WithToken(r.Context(), t)))
		})
	}
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// parseOne reads the token from the values of a header: there must be one value.
func parseOne(values []string) (Token, error) {
	switch len(values) {
	case 0:
		return Token{}, ErrNoToken
	case 1:
		return ParseToken(values[0])
	}
	return Token{}, fmt.Errorf("%w: there are %d", ErrMalformed, len(values))
}

func refuse(w http.ResponseWriter, err error) {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			w.Header().Set(refusedHeader, r.word)
			http.Error(w, err.Error(), r.status)
			return
		}
	}
	// The client must not see err: it may have details of the store.
	http.Error(w, "fence: the token cannot be judged now", http.StatusServiceUnavailable)
}

// Refused returns why [Require] has refused the token of a request: ErrStale, ErrNoToken,
// ErrMalformed or ErrOtherElection. Call it with the response to the request. For any other
// response it returns nil, even for the application's own 409, and for nil.
func Refused(res *http.Response) error {
	for _, r := range refusals {
		if res != nil && res.StatusCode == r.status && res.Header.Get(refusedHeader) == r.word {
			return r.err
		}
	}
	return nil
}

// Transport is an http.RoundTripper that adds the token of a leadership to each request. Use it in
// the http.Client by which a leader writes. The request's ctx says which leadership it belongs
// to, see [WithGate].
//
// Once the view of that leadership has ended, Transport refuses to send the request, with
// leaderelection.ErrNotLeading. If the ctx belongs to no leadership, it refuses with ErrNoGate.
// It asks the view again when it has a connection, so that a request that has waited for one
// does not go out late. When the view ends it stops a body midway, so that no whole request
// arrives. Requests of several leaderships, one after the other, may share a Transport and its
// connections.
//
// No sender can prevent all late requests. The process may be stopped between the question and
// the sending, and the network may delay the request. (On HTTP/2, a request may also wait up to
// a second for its turn on a connection, if the view is lost before its time.) That is why the
// resource judges the token. If the request's ctx itself ends with ErrNotLeading, as that of a request
// let in by lehttp does, a request that was sent may fail with that error, too.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport. Base must report its
	// connections to an httptrace.ClientTrace, as http.Transport does. If it does not, the
	// view is asked only before Base is called. A request without an answer when the view
	// ends is then given up with leaderelection.ErrNotLeading, whether it was sent or not.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	gate := GateFrom(r.Context())
	token, err := gate.Token()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as RoundTrip must, also on errors
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	watched, sent := gate.untilSent(ctx, cancel)
	out := r.Clone(watched)
	out.Header.Set(Header, token.String())
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = &gatedBody{r.Body, gate}
	}
	if r.GetBody != nil {
		out.GetBody = func() (io.ReadCloser, error) {
			body, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			return &gatedBody{body, gate}, nil
		}
	}
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	res, err := base.RoundTrip(out)
	sent()
	if ended := context.Cause(ctx); err != nil && errors.Is(ended, leaderelection.ErrNotLeading) {
		err = ended
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if conn, ok := res.Body.(io.ReadWriteCloser); ok { // after 101
		res.Body = &freeingConn{conn, cancel}
	} else {
		res.Body = &freeingBody{res.Body, cancel}
	}
	return res, nil
}

// untilSent returns the ctx of a request. It calls cancel if the view ends before the request's
// header has been sent, or sent was called.
func (g Gate) untilSent(ctx context.Context, cancel context.CancelCauseFunc) (watched context.Context, sent func()) {
	watch := viewctx.New(ctx, g.View)
	forget := context.AfterFunc(watch, func() {
		if errors.Is(context.Cause(watch), leaderelection.ErrNotLeading) {
			_, err := g.Token()
			cancel(err)
		}
	})
	sent = func() { forget(); watch.Stop() }
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			if _, err := g.Token(); err != nil {
				cancel(err)
				// HTTP/2 looks at ctx before it writes. HTTP/1 does not, and has the
				// connection for itself.
				if c, ok := i.Conn.(*tls.Conn); !ok || c.ConnectionState().NegotiatedProtocol != "h2" {
					abort(i.Conn)
				}
			}
		},
		WroteHeaders: sent,
	}), sent
}

// abort closes a connection that has not been used, without waiting.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn() // without the goodbye, which may block
	}
	_ = c.Close()
}

// freeingBody cancels the request's ctx when it is closed, which frees what the ctx holds.
type freeingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *freeingBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// freeingConn is a freeingBody that can be written to.
type freeingConn struct {
	io.ReadWriteCloser
	cancel context.CancelCauseFunc
}

func (c *freeingConn) Close() error {
	defer c.cancel(nil)
	return c.ReadWriteCloser.Close()
}

// gatedBody ends with an error when the view ends.
type gatedBody struct {
	io.ReadCloser
	gate Gate
}

func (b *gatedBody) Read(p []byte) (int, error) {
	if _, err := b.gate.Token(); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if _, ended := b.gate.Token(); ended != nil { // the view ended while Read waited: n might be the last of the body
		return 0, ended
	}
	return n, err
}
