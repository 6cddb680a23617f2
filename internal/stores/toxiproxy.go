package stores

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// Proxy is a TCP proxy in front of a server: toxiproxy, in a process of its own.
type Proxy struct {
	// Addr is where it listens: host and port.
	Addr string

	t       testing.TB
	control string
}

// Toxiproxy starts a proxy to each of the servers that listen on these
// addresses; one may be named several times, for proxies that are cut one by
// one.
func Toxiproxy(t testing.TB, upstreams ...string) []*Proxy {
	t.Helper()
	Nightly(t, "it cuts connections and waits")
	var addrs []string
	for _, upstream := range upstreams {
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", FreePort(t)), upstream)
	}
	s := Server(t, "toxiproxy", addrs...)
	proxies := make([]*Proxy, len(upstreams))
	for i := range upstreams {
		p := &Proxy{t: t, control: fmt.Sprintf("http://%s/%d", s.Addr, i)}
		p.Addr = p.ask(http.MethodGet, "")
		proxies[i] = p
	}
	return proxies
}

// Cut closes all connections, and refuses new ones, until Heal.
func (p *Proxy) Cut() { p.ask(http.MethodPost, "/cut") }

// Hang lets connections stand, and new ones be made, but no byte through in
// either direction, until Heal: as when a network loses everything.
func (p *Proxy) Hang() { p.ask(http.MethodPost, "/hang") }

// Mute lets requests through, and no answers, until Heal: what was asked is done,
// and nobody is told.
func (p *Proxy) Mute() { p.ask(http.MethodPost, "/mute") }

// Sever closes each connection when so many more bytes have gone to the server,
// until Heal: in the middle of a request, if it is longer.
func (p *Proxy) Sever(bytes int) { p.ask(http.MethodPost, fmt.Sprintf("/sever?n=%d", bytes)) }

// Slow delays all that comes from the server, until Heal.
func (p *Proxy) Slow(by time.Duration) {
	p.ask(http.MethodPost, fmt.Sprintf("/slow?n=%d", by.Milliseconds()))
}

// Heal undoes all of these. Connections that hung are closed: what they
// lost is lost.
func (p *Proxy) Heal() { p.ask(http.MethodPost, "/heal") }

func (p *Proxy) ask(method, path string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, err := ask(ctx, method, p.control+path, "")
	if err != nil {
		p.t.Fatalf("stores: toxiproxy: %s %s: %v", method, path, err)
	}
	return answer
}
