//go:build go1.25

package lehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
	"github.com/c8e606e4/leaderelection/internal/route/routetest"
)

// Known returns how many shards' Proxies there are.
func (p *ShardProxy) Known() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.proxies)
}

// NewRouter returns a Router that learns of records only by News.
func NewRouter(config leaderelection.Config) *Router {
	return &Router{table: route.NewTable(config.Clock, config.MaxClockSkew, config.ClockPolicy)}
}

// News tells the Router of a record.
func (r *Router) News(e leaderelection.RaceEntry) { r.table.News(e) }

// NewShardRouter returns a ShardRouter that learns of no assignment.
func NewShardRouter() *ShardRouter { return &ShardRouter{shards: route.NewShards(nil)} }

// A connection of HTTP/2 on which nothing passes any more is left within 20 s, though
// the leader leads on; one on which the leader takes its time is not.
func TestADeadConnectionIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := routetest.NewPipes()
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
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) }
		transport.Protocols = &protocols
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
		time.AfterFunc(time.Second, p.Cut)
		text, err := get()
		if took := time.Since(begin); err == nil || errors.Is(err, context.Canceled) || took > 22*time.Second {
			t.Errorf("a connection that was cut: %q, %v after %v", text, err, took)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
	})
}

// The Proxy's own Transports do not dial an address that is refused, to which a name may resolve: nor does the
// one of a single leadership, made for TLSFor.
func TestTransportsCheckWhatTheyDial(t *testing.T) {
	p := NewRouter(leaderelection.Config{}).Proxy(&ProxyOptions{TLSFor: func(leaderelection.RaceEntry) (*tls.Config, error) { return nil, nil }})
	defer p.Close()
	if err := p.way.dress(p.router.table.Load(), (*sender)(p)); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []http.RoundTripper{p.own, p.way.trip} {
		if _, err := transport.(*http.Transport).DialContext(t.Context(), "tcp", "169.254.169.254:80"); err == nil || !strings.Contains(err.Error(), "is refused") {
			t.Error(err)
		}
	}
}
