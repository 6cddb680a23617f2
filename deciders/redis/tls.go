package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"
)

// tlsFiles are PEM files: the authorities to trust in place of the system's, and
// the client's own certificate with its key. Each may be empty.
type tlsFiles struct{ ca, cert, key string }

// check says what is wrong with them.
func (f tlsFiles) check(u *url.URL) error {
	switch {
	case f == tlsFiles{}:
		return nil
	case u.Scheme != "rediss":
		return fmt.Errorf("the scheme is %q, and tls_ca, tls_cert and tls_key go with rediss", u.Scheme)
	case (f.cert == "") != (f.key == ""):
		return errors.New("tls_cert and tls_key go together")
	}
	return f.read(new(tls.Config))
}

// read brings them into c.
func (f tlsFiles) read(c *tls.Config) error {
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return fmt.Errorf("tls_ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls_ca: %s has no certificate in PEM form", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// dialer returns what makes each connection by the files as they are then, or nil,
// for the client's own, where there are none.
func (f tlsFiles) dialer(base *tls.Config, timeout time.Duration) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if f == (tlsFiles{}) {
		return nil
	}
	if timeout <= 0 {
		timeout = answerTime // as the client's own default
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c := base.Clone()
		if err := f.read(c); err != nil {
			return nil, err
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout}, Config: c}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return d.DialContext(ctx, network, addr)
	}
}
