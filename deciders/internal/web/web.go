// Package web has the HTTP connections of the clients that stores' Open makes.
//
// A NAT, a firewall or a load balancer may forget a connection without telling anyone. With HTTP/2
// all requests share one connection, and go on to be sent on it, until a ping is not answered: how
// often to ping depends on the term, which Open does not know. With HTTP/1 a request that is
// given up closes its connection, and the next one makes a new one.
package web

import (
	"net"
	"net/http"
	"time"
)

// OneCall has a transport use HTTP/1, so that each connection carries one call at a time. It
// keeps one idle connection. Close it when a call is given up, by CloseIdleConnections: it may have
// died, too, and would cost another call.
func OneCall(t *http.Transport) {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.MaxIdleConnsPerHost = 1
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = nil // a clone may have those of HTTP/2
	}
}

// NewTransport returns a transport with OneCall, for SDKs whose own transport cannot be adjusted.
func NewTransport() *http.Transport {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		IdleConnTimeout:     90 * time.Second,
	}
	OneCall(t)
	return t
}

// Client returns a client with this transport that follows the redirects that keep the method, as the
// AWS SDK's own does: a 301 is an answer for the SDK.
func Client(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if s := r.Response.StatusCode; s == http.StatusTemporaryRedirect || s == http.StatusPermanentRedirect {
			return nil
		}
		return http.ErrUseLastResponse
	}}
}
