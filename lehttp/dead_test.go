//go:build go1.25

package lehttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener that is dialled through memory, and can be cut: from then on nothing
// passes, and nobody is told.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	cut   atomic.Bool
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return &cuttable{here, p}, nil
}

type cuttable struct {
	net.Conn
	p *pipes
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.p.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A connection of HTTP/2 on which nothing passes any more is left within 20 s, though
// the leader leads on; one on which the leader takes its time is not.
func TestADeadConnectionIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, r.Proto)
		})}
		go func() { _ = server.Serve(p) }()
		transport := newTransport(true, nil)
		transport.DialContext, transport.Protocols = p.dial, &protocols
		get := func() (string, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://leader/", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := transport.RoundTrip(req)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			return string(text), err
		}
		if text, err := get(); text != "HTTP/2.0" || err != nil {
			t.Errorf("a slow leader: %q, %v", text, err)
		}
		begin := time.Now()
		time.AfterFunc(time.Second, func() { p.cut.Store(true) })
		text, err := get()
		if took := time.Since(begin); err == nil || errors.Is(err, context.Canceled) || took > 22*time.Second {
			t.Errorf("a connection that was cut: %q, %v after %v", text, err, took)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
	})
}
