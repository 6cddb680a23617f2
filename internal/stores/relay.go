package stores

import (
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
)

// Relay is a TCP proxy in front of a server, in this process, whose old connections and new ones
// may fare differently: what Toxiproxy does, it does to all.
type Relay struct {
	// Addr is where it listens: host and port.
	Addr string

	mu    sync.Mutex
	to    string
	conns []*relayed
}

// relayed is a connection of a client, and the one that goes with it.
type relayed struct {
	ends [2]net.Conn
	dead atomic.Bool
}

// NewRelay starts a relay to the server that listens on this address.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: l.Addr().String(), to: to}
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
		for _, c := range r.conns {
			c.close()
		}
		r.to = "" // for those that are being made
		r.mu.Unlock()
		all.Wait()
	})
	return r
}

// Swallow loses, without a word, all that the connections of now carry, as a NAT or a firewall does
// that has forgotten them. New ones work.
func (r *Relay) Swallow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.dead.Store(true)
	}
}

// Lead has new connections go to another server, as a name or an address does after a fail-over.
// The connections of now stay.
func (r *Relay) Lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *Relay) serve(c net.Conn) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	u, err := net.Dial("tcp", to)
	if err != nil {
		_ = c.Close()
		return
	}
	x := &relayed{ends: [2]net.Conn{c, u}}
	defer x.close()
	r.mu.Lock()
	gone := r.to == ""
	r.conns = append(r.conns, x)
	r.mu.Unlock()
	if gone {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		x.pass(c, u)
	}()
	x.pass(u, c)
	<-back
}

func (x *relayed) close() {
	_ = x.ends[0].Close()
	_ = x.ends[1].Close()
}

// pass hands on what comes. When one side ends so does the other, unless that is lost as well.
func (x *relayed) pass(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		dead := x.dead.Load()
		if !dead && n > 0 {
			_, _ = to.Write(b[:n])
		}
		if err != nil {
			if !dead {
				_ = to.Close()
			}
			return
		}
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
