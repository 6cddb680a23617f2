package main

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy forwards TCP connections to a store, until it is frozen: then everything
// stays open and nothing goes through, as when a cable is cut.
type proxy struct {
	listener net.Listener
	upstream string
	delay    time.Duration // until what comes from one side has reached the other
	frozen   chan struct{}

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

func newProxy(t testing.TB, upstream string, delay time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, upstream: upstream, delay: delay, frozen: make(chan struct{})}
	go p.serve()
	t.Cleanup(p.close)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) freeze() { close(p.frozen) }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.closed = true
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
	}
	p.conns = append(p.conns, c)
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // it is closed
		}
		p.keep(client)
		select {
		case <-p.frozen:
			continue
		default:
		}
		store, err := net.Dial("tcp", p.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(store)
		go p.forward(store, client)
		go p.forward(client, store)
	}
}

// chunk is what has been read at once, and when it is to be written.
type chunk struct {
	data []byte
	due  time.Time
}

// forward copies what comes from one side to the other. What arrives after the
// freeze is read and dropped; nobody is told.
func (p *proxy) forward(to, from net.Conn) {
	chunks := make(chan chunk, 1024)
	defer close(chunks)
	go func() {
		var err error
		for c := range chunks {
			time.Sleep(time.Until(c.due)) // the wire's delay
			switch {
			case c.data == nil:
				_ = to.Close()
			case err == nil:
				if _, err = to.Write(c.data); err != nil {
					_ = from.Close()
				}
			}
		}
	}()
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		select {
		case <-p.frozen:
			if err == nil {
				continue
			}
			return
		default:
		}
		due := time.Now().Add(p.delay)
		if n > 0 {
			chunks <- chunk{buffer[:n], due}
		}
		if err != nil {
			if err == io.EOF {
				chunks <- chunk{nil, due}
			}
			return
		}
	}
}
