// Package web has the HTTP connections of the clients that stores' Open makes.
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. With HTTP/2
// all requests share one connection, and go on to be sent on it, until a ping is not answered: how
// often to ping depends on the term, which Open does not know. With HTTP/1 a request that is
// given up closes its connection, and the next one makes a new one.
package web

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/lines"
)

// OneCall has a transport use HTTP/1, so that each connection carries one call at a time. It keeps
// one idle connection, and lists all in l. The transport has a DialContext.
func OneCall(t *http.Transport, l *lines.Lines) {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return l.Add(c), nil
	}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.MaxIdleConnsPerHost = 1
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = nil // a clone may have those of HTTP/2
	}
}

// NewTransport returns a transport with OneCall, for SDKs whose own transport cannot be adjusted.
func NewTransport(l *lines.Lines) *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
	OneCall(t, l)
	return t
}
