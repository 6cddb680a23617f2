package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	conns "github.com/c8e606e4/leaderelection/deciders/internal/lines"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/lines"
)

// keepAlive is the period of the keep-alive packets of a connection without TLS, as the client's own.
const keepAlive = 5 * time.Minute

// schemeOf is the scheme that go-redis gets for u, with TLS if there are files.
func schemeOf(u *url.URL, files store.TLSFiles) (string, error) {
	switch socket := u.Scheme == "redis+unix"; {
	case u.Scheme != "redis" && u.Scheme != "rediss" && !socket:
		return "", fmt.Errorf("the scheme is %q; want redis, rediss for TLS, or redis+unix for a socket", u.Scheme)
	case socket && !files.None():
		return "", errors.New("tls_ca, tls_cert and tls_key imply TLS, which a socket does not have")
	case socket:
		return "unix", nil
	case u.Hostname() == "": // go-redis would take localhost, and each machine would have a leader of its own
		return "", fmt.Errorf("the URL names no server: write %s://host:6379/0?key=election:web", u.Scheme)
	case files.None():
		return u.Scheme, nil
	}
	_, err := files.Load()
	return "rediss", err
}

// dialer returns what makes each connection, with TLS by the files as they are then, and lists it.
func dialer(files store.TLSFiles, base *tls.Config, timeout time.Duration, l *conns.Lines) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if timeout <= 0 {
		timeout = lines.AnswerTime // as the client's own default
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var c net.Conn
		var err error
		if files.None() && base == nil {
			c, err = (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, network, addr)
		} else {
			c, err = files.Dial(ctx, base, network, addr)
		}
		if err != nil {
			return nil, err
		}
		return l.Add(c), nil
	}
}
