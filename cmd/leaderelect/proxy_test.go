package main

import (
	"net"
	"sync"
	"testing"
)

// proxy is a way to the store, which can be cut: then nothing comes
// through, and connections stay open, as on a network that loses packets.
type proxy struct {
	Addr string

	mu    sync.Mutex
	open  chan struct{} // closed while not cut
	conns map[net.Conn]bool
	over  bool
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Addr: l.Addr().String(), open: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(p.open)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c, to) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.over = true
		for c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.heal()
		wg.Wait()
	})
	return p
}

func (p *proxy) serve(near net.Conn, to string) {
	defer near.Close()
	<-p.gate()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.conns[near], p.conns[far] = true, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(far, near) })
	p.copy(near, far)
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, near)
	delete(p.conns, far)
	p.mu.Unlock()
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		<-p.gate()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// connections is how many there are to the store.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

func (p *proxy) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}
