package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/lines"
)

// schemeOf is the scheme that go-redis gets for u, with TLS if there are files.
func schemeOf(u *url.URL, files store.TLSFiles) (string, error) {
	switch {
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return "", fmt.Errorf("the scheme is %q; want redis, rediss for TLS, or unix for a socket", u.Scheme)
	case files.None():
		return u.Scheme, nil
	case u.Scheme == "unix":
		return "", errors.New("tls_ca, tls_cert and tls_key imply TLS, which a socket does not have")
	}
	_, err := files.Load()
	return "rediss", err
}

// dialer returns what makes each connection with TLS, by the files as they are then, or nil, for
// the client's own, without.
func dialer(files store.TLSFiles, base *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if files.None() && base == nil {
		return nil
	}
	if timeout <= 0 {
		timeout = lines.AnswerTime // as the client's own default
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return files.Dial(ctx, base, network, addr)
	}
}
