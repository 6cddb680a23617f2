package stores

import (
	"bytes"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay is a TCP proxy in front of a server, in this process. Unlike Toxiproxy it needs no program,
// can lose the old connections and keep the new ones, and passes on later what it held while it was cut.
type Relay struct {
	// Addr is where it listens: host and port.
	Addr string

	mu     sync.Mutex
	to     string // empty at the end of the test
	delay  time.Duration
	cut    bool
	healed sync.Cond // says that it is not cut any more
	conns  map[*relayed]bool
}

// relayed is a connection of a client, and the one to the server that goes with it.
type relayed struct {
	near, far net.Conn
	dead      atomic.Bool
}

// NewRelay starts a relay to the server that listens on this address.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: l.Addr().String(), to: to, conns: make(map[*relayed]bool)}
	r.healed.L = &r.mu
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Add(1)
			go func() {
				defer all.Done()
				r.serve(c)
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for x := range r.conns {
			x.close()
		}
		r.to = "" // for those that are being made
		r.mu.Unlock()
		r.Heal() // what was held finds the connections closed
		all.Wait()
	})
	return r
}

// Swallow loses, without a word, all that the connections of now carry, as a NAT or a firewall does
// that has forgotten them. New ones work.
func (r *Relay) Swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for x := range r.conns {
		x.dead.Store(true)
	}
}

// Lead has new connections go to another server, as a name or an address does after a fail-over.
// The connections of now stay.
func (r *Relay) Lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

// Delay has what comes from one side, from now on, arrive so much later at the other.
func (r *Relay) Delay(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = by
}

// Cut holds all that comes, and new connections too, until Heal. Everything stays open, as when a cable is cut.
func (r *Relay) Cut() { r.setCut(true) }

// Heal passes on what Cut has held. Without a Cut it does nothing.
func (r *Relay) Heal() { r.setCut(false) }

func (r *Relay) setCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	r.healed.Broadcast()
}

// Connections is how many there are to the server.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// way returns where new connections go, when the relay is not cut.
func (r *Relay) way() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.cut {
		r.healed.Wait()
	}
	return r.to
}

func (r *Relay) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", r.way())
	if err != nil {
		return
	}
	x := &relayed{near: near, far: far}
	defer x.close()
	r.mu.Lock()
	gone := r.to == ""
	r.conns[x] = true
	r.mu.Unlock()
	if gone {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		r.pass(x, near, far)
	}()
	r.pass(x, far, near)
	<-back
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, x)
}

func (x *relayed) close() {
	_ = x.near.Close()
	_ = x.far.Close()
}

// pass hands on what comes, and when one side ends, the end. Both can be delayed, held and lost.
func (r *Relay) pass(x *relayed, to, from net.Conn) {
	type piece struct {
		data []byte
		due  time.Time
	}
	wire := make(chan piece, 1024) // it is read on while earlier pieces are delayed
	go func() {
		defer close(wire)
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			r.mu.Lock()
			due := time.Now().Add(r.delay)
			r.mu.Unlock()
			wire <- piece{bytes.Clone(b[:n]), due} // without data if this is only the end
			if err != nil {
				return
			}
		}
	}()
	for p := range wire {
		time.Sleep(time.Until(p.due))
		r.way()
		if !x.dead.Load() {
			_, _ = to.Write(p.data)
		}
	}
	if !x.dead.Load() {
		_ = to.Close()
	}
}

// HTTP2 serves a handler with TLS and HTTP/2, and HTTP/1 for clients that ask for it, as load balancers
// do. It returns the address. The AWS SDK trusts it, and so does all that goes by the system's
// authorities, if no test of the process has used these before.
func HTTP2(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", file)
	t.Setenv("SSL_CERT_FILE", file)
	return s.Listener.Addr().String()
}

// HTTP2Before is HTTP2 before a server that has a URL.
func HTTP2Before(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Transport{DisableKeepAlives: true}
	return HTTP2(t, &httputil.ReverseProxy{Transport: web, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Host = r.In.Host // which a signature may cover
	}})
}
