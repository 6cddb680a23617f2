package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// TLSFiles are the files in PEM form of a client's TLS. Each may be empty.
type TLSFiles struct {
	CA   string // the authorities of the servers' certificates; empty: the system's
	Cert string // the client's certificate
	Key  string // its key
}

// TLSFiles takes the three parameters that name files: they are called the same in the URLs
// of all stores.
func (p *Params) TLSFiles() TLSFiles {
	return TLSFiles{p.String("tls_ca"), p.String("tls_cert"), p.String("tls_key")}
}

// TLS takes the parameter tls, and those of the files, which imply it. It reports whether to
// connect with TLS. Rest returns faults of the files.
func (p *Params) TLS() (on bool, files TLSFiles) {
	said := p.values["tls"]
	on, files = p.Bool("tls"), p.TLSFiles()
	if len(said) > 0 && !on {
		files.Exclude(p, "tls="+said[0])
	}
	if _, err := files.Load(); err != nil {
		p.Wrong("%w", err)
	}
	return on || !files.None(), files
}

// Exclude notes that a setting that allows connections in the clear, or does not check the server,
// is wrong if a file is named.
func (f TLSFiles) Exclude(p *Params, setting string) {
	if !f.None() {
		p.Wrong("the parameters tls_ca, tls_cert and tls_key imply TLS that checks the server's certificate: leave out %s", setting)
	}
}

// None reports whether no file is named.
func (f TLSFiles) None() bool { return f.CA+f.Cert+f.Key == "" }

// Load reads the files as they are now. Call it for each connection, since certificates are
// renewed.
func (f TLSFiles) Load() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	return cfg, f.Into(cfg)
}

// Into is Load into a configuration that has other settings.
func (f TLSFiles) Into(cfg *tls.Config) error {
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return fmt.Errorf("parameter tls_ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter tls_ca: %s has no PEM certificate", f.CA)
		}
	}
	switch {
	case f.Cert+f.Key == "":
		return nil
	case f.Cert == "" || f.Key == "":
		return errors.New("the parameters tls_cert and tls_key go together")
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return fmt.Errorf("parameters tls_cert and tls_key: %w", err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return nil
}

// Dial connects with TLS, by the files as they are now and by whatever else base says, which
// may be nil.
func (f TLSFiles) Dial(ctx context.Context, base *tls.Config, network, address string) (net.Conn, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		cfg = base.Clone()
	}
	if err := f.Into(cfg); err != nil {
		return nil, err
	}
	return DialTLS(ctx, cfg, network, address)
}

// DialTLS connects with TLS, as a tls.Dialer does. Its errors say which of both has failed: one of
// the dial begins so, and a server that speaks no TLS may say nothing at all.
func DialTLS(ctx context.Context, cfg *tls.Config, network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
			cfg.ServerName = address
		}
	}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (does it speak TLS on this port?)", err)
		}
		return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
	}
	return c, nil
}

// Renewed is something that a client makes from files once: credentials, or the client itself.
// After Distrust it is made again from the files. Its methods may be called by several goroutines
// at once.
type Renewed[T any] struct {
	again func(context.Context) (T, error)

	mu         sync.Mutex
	now        T
	distrusted bool
}

// NewRenewed returns one that was made just now, and the function that makes it again.
func NewRenewed[T any](now T, again func(context.Context) (T, error)) *Renewed[T] {
	return &Renewed[T]{again: again, now: now}
}

// Get returns what was made last. If the files cannot be read it stays the same: somebody may be
// about to write them.
func (r *Renewed[T]) Get(ctx context.Context) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.distrusted {
		if now, err := r.again(ctx); err == nil {
			r.now, r.distrusted = now, false
		}
	}
	return r.now
}

// Distrust makes the next Get read the files. Call it for each error that other files may cure.
func (r *Renewed[T]) Distrust() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.distrusted = true
}
