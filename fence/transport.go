package fence

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/viewctx"
)

// Transport is an http.RoundTripper that stamps each request with the token of
// the leadership that its ctx belongs to (see NewContext), and refuses to send it
// once that leadership's view has ended: with ErrViewEnded, or ErrNoGate where the
// ctx belongs to none. The view is asked again when a connection has been found, so
// that what waits for one does not go out late. A body is stopped midway when the
// view ends, so that what arrives is no whole request. Requests of several
// leaderships, one after the other, may share a Transport and its connections.
//
// What is left is what no sender can help: a process that is stopped between the
// question and the sending, and the network's delay. (On HTTP/2, also up to a second
// in which a request waits for its turn on a connection, if the view is lost before
// its time.) For that the resource judges the token.
type Transport struct {
	// Base sends the requests. Nil: http.DefaultTransport. It must tell an
	// httptrace.ClientTrace of its connections, as http.Transport does: if another
	// does not, the view is asked only before Base is called, and a request whose
	// answer has not come when the view ends is given up with ErrViewEnded, sent or
	// not.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	gate := GateOf(r.Context())
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
	if ended := context.Cause(ctx); err != nil && errors.Is(ended, ErrViewEnded) {
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

// untilSent returns ctx for a request that is called off by cancel if the view ends
// before its header has been sent, or sent was called.
func (g Gate) untilSent(ctx context.Context, cancel context.CancelCauseFunc) (watched context.Context, sent func()) {
	watch := viewctx.New(ctx, g.Ends())
	forget := context.AfterFunc(watch, func() {
		if errors.Is(context.Cause(watch), leaderelection.ErrExpired) {
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

// abort closes a connection that has not been used, and does not wait for it.
func abort(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn() // without the goodbye, which may block
	}
	_ = c.Close()
}

// freeingBody frees what the request's ctx holds when it is closed.
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

// gatedBody ends with an error when the view does.
type gatedBody struct {
	io.ReadCloser
	gate Gate
}

func (b *gatedBody) Read(p []byte) (int, error) {
	if _, err := b.gate.Token(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}
