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
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

// Header is the HTTP header that carries a token.
const Header = "Fencing-Token"

// ErrNoGate means that a request was not sent, because its ctx belongs to no leadership.
var ErrNoGate = errors.New("fence: not sent: the request's ctx has no Gate: use fence.WithGate")

// Gate is the right to write of one leadership. Make it once, when the leadership begins, from
// the view that OnElected gets. Do not take the View from a Campaign when something is sent:
// work left over from an earlier leadership must not pass with the token of a later one.
type Gate struct {
	// View is the leadership's view, as OnElected gets it.
	View View
	// Election names the election, as for the resource's Guard. A Gate without it makes no token.
	Election string
}

// View says until when a leadership lasts, and which it is: a *leaderelection.TimeView. Its methods
// may be called by several goroutines at once. The owner of a shard gets its Gate from shard.Owned.
type View interface {
	ValueInFuture() bool
	Get() time.Time
	Clock() clocks.Clock
	ElectionNumber() leaderelection.ElectionNumber
}

// Token returns the leadership's token. Once the view has ended it returns an error that wraps
// leaderelection.ErrNotLeading. If the Gate has no View, it returns ErrNoGate. If it has no Election,
// the error wraps ErrMalformed.
func (g Gate) Token() (Token, error) {
	if g.View == nil {
		return Token{}, ErrNoGate
	}
	t := Token{Election: g.Election, Number: g.View.ElectionNumber()}
	if !g.View.ValueInFuture() {
		return Token{}, fmt.Errorf("fence: not sent: %w (token %d of %q)", leaderelection.ErrNotLeading, t.Number, t.Election)
	}
	if err := t.Check(t.Election); err != nil {
		return Token{}, fmt.Errorf("fence: not sent: the Gate's View and Election make no token: %w", err)
	}
	return t, nil
}

type (
	gateKey  struct{}
	tokenKey struct{}
)

// WithGate returns a ctx whose requests belong to the leadership of g. A [Transport] sends them
// with its token.
func WithGate(ctx context.Context, g Gate) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

// GateFrom returns the Gate that WithGate put into ctx, or a Gate that lets nothing pass.
func GateFrom(ctx context.Context) Gate {
	g, _ := ctx.Value(gateKey{}).(Gate)
	return g
}

// WithToken returns a ctx for the handling of a request that came with t. The middleware and the
// interceptors of this library call it.
func WithToken(ctx context.Context, t Token) context.Context {
	return context.WithValue(ctx, tokenKey{}, t)
}

// TokenFrom returns the token that a request came with. Use it as the condition of the writes that
// a handler makes for that request.
func TokenFrom(ctx context.Context) (Token, bool) {
	t, ok := ctx.Value(tokenKey{}).(Token)
	return t, ok
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
