package routetest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// Pipes is a listener that is dialled through memory, and can be cut: from then on nothing
// passes, and neither side gets an error.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	cut   atomic.Bool
}

// NewPipes returns one that is not cut.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Cut cuts it.
func (p *Pipes) Cut() { p.cut.Store(true) }

// Accept implements net.Listener.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *Pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// Addr implements net.Listener.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Dial makes a connection.
func (p *Pipes) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return &cuttable{here, p}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// cuttable is the client's side.
type cuttable struct {
	net.Conn
	p *Pipes
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.p.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}
