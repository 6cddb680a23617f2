package redis

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/deciders/redis/internal/lines"
)

// checkFiles says what is wrong with the files that u names.
func checkFiles(u *url.URL, files store.TLSFiles) error {
	switch {
	case files.None():
		return nil
	case u.Scheme != "rediss":
		return fmt.Errorf("the scheme is %q, and tls_ca, tls_cert and tls_key go with rediss", u.Scheme)
	}
	_, err := files.Load()
	return err
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
