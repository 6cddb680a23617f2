package stores

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay is a TCP proxy in front of a server, in this process.
type Relay struct {
	// Addr is where it listens: host and port.
	Addr string

	t        testing.TB
	serving  sync.WaitGroup
	mu       sync.Mutex
	listener net.Listener // nil while it refuses
	to       string       // empty at the end of the test
	delay    time.Duration
	asks     direction // from clients to the server
	answers  direction
	limit    int // bytes to the server after which a connection is closed; 0 is without limit
	conns    map[*relayed]bool
}

// direction is the way that bytes go, of all connections.
type direction struct {
	held  bool
	freed sync.Cond // says that they are not held any more
}

// relayed is a connection of a client, and the one to the server that goes with it.
type relayed struct {
	near, far net.Conn
	dead      atomic.Bool
	asked     int // bytes to the server since there is a limit, under the relay's mu
}

// NewRelay starts a relay to the server that listens on this address.
func NewRelay(t testing.TB, to string) *Relay {
	t.Helper()
	r := &Relay{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), t: t, to: to, conns: make(map[*relayed]bool)}
	r.asks.freed.L, r.answers.freed.L = &r.mu, &r.mu
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listen()
	t.Cleanup(func() {
		r.mu.Lock()
		r.refuse()
		r.to = "" // for those that are being made
		r.hold(false, false)
		r.mu.Unlock()
		r.serving.Wait()
	})
	return r
}

func (r *Relay) listen() {
	l, err := net.Listen("tcp", r.Addr)
	if err != nil {
		r.t.Fatalf("stores: a relay: %v", err)
	}
	r.listener = l
	r.serving.Add(1)
	go func() {
		defer r.serving.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.serving.Add(1)
			go func() {
				defer r.serving.Done()
				r.serve(c)
			}()
		}
	}()
}

// Refuse closes all connections, and has new ones refused, until Heal: as when the server is down.
func (r *Relay) Refuse() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse()
}

func (r *Relay) refuse() {
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	for x := range r.conns {
		x.close()
	}
}

// Cut holds all that comes, and new connections too, until Heal. Everything stays open, as when a cable is cut.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold(true, true)
}

// Mute lets requests through, and holds the answers, until Heal: the server does its work, and the client does not know.
func (r *Relay) Mute() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold(false, true)
}

func (r *Relay) hold(asks, answers bool) {
	r.asks.held, r.answers.held = asks, answers
	r.asks.freed.Broadcast()
	r.answers.freed.Broadcast()
}

// Sever closes each connection when so many more bytes have gone to the server, until Heal: in the
// middle of a request, if it is longer.
func (r *Relay) Sever(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = bytes
	for x := range r.conns {
		x.asked = 0
	}
}

// Heal ends what Refuse, Cut, Mute and Sever have begun, and passes on what was held.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = 0
	r.hold(false, false)
	if r.listener == nil {
		r.listen()
	}
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

// Delay has what the server says from now on arrive so much later. Heal does not end it.
func (r *Relay) Delay(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = by
}

// Connections is how many there are to the server.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// way returns where new connections go, when nothing is held in this direction.
func (r *Relay) way(d *direction) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for d.held {
		d.freed.Wait()
	}
	return r.to
}

func (r *Relay) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", r.way(&r.asks))
	if err != nil {
		return
	}
	x := &relayed{near: near, far: far}
	defer x.close()
	r.mu.Lock()
	gone := r.listener == nil
	r.conns[x] = true
	r.mu.Unlock()
	if !gone {
		back := make(chan struct{})
		go func() {
			defer close(back)
			r.pass(x, near, far, &r.answers)
		}()
		r.pass(x, far, near, &r.asks)
		<-back
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, x)
}

func (x *relayed) close() {
	_ = x.near.Close()
	_ = x.far.Close()
}

// pass hands on what comes, and when one side ends, the end. Both can be delayed, held and lost.
func (r *Relay) pass(x *relayed, to, from net.Conn, d *direction) {
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
			p := piece{bytes.Clone(b[:n]), time.Now()} // without data if this is only the end
			if d == &r.answers {
				r.mu.Lock()
				p.due = p.due.Add(r.delay)
				r.mu.Unlock()
			}
			wire <- p
			if err != nil {
				return
			}
		}
	}()
	for p := range wire {
		time.Sleep(time.Until(p.due))
		r.way(d)
		if x.dead.Load() {
			continue
		}
		most, severed := len(p.data), false
		if d == &r.asks {
			most, severed = r.allow(x, most)
		}
		_, _ = to.Write(p.data[:most])
		if severed {
			x.close()
		}
	}
	if !x.dead.Load() {
		_ = to.Close()
	}
}

// allow returns how many of n bytes may go to the server, and whether they are the last.
func (r *Relay) allow(x *relayed, n int) (most int, severed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limit == 0 {
		return n, false
	}
	most = min(n, r.limit-x.asked)
	x.asked += most
	return most, x.asked == r.limit
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
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
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

// HAProxy starts a haproxy that config makes of the port at which it is to listen on
// 127.0.0.1.
func HAProxy(t testing.TB, config func(port int) string) *Process {
	t.Helper()
	Nightly(t, "it starts HAProxy")
	path := Need(t, "haproxy")
	dir := t.TempDir()
	return Start(t, Program{Name: "haproxy", Dir: dir, Command: func(port int) []string {
		file := filepath.Join(dir, "haproxy.cfg")
		write(t, file, config(port))
		return []string{path, "-db", "-f", file}
	}})
}
