package store

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
)

// TLSFiles are the files in PEM form of a client's TLS. Each may be empty.
type TLSFiles struct {
	CA   string // the authorities of the servers' certificates; empty: the system's
	Cert string // the client's certificate
	Key  string // its key

	ca, cert, key string // the parameters that named them
}

// TLSFiles takes the three parameters that name files.
func (p *Params) TLSFiles(ca, cert, key string) TLSFiles {
	return TLSFiles{p.String(ca), p.String(cert), p.String(key), ca, cert, key}
}

// None reports whether no file is named.
func (f TLSFiles) None() bool { return f.CA+f.Cert+f.Key == "" }

// Load reads the files as they are now. Call it for each connection, since certificates
// are renewed.
func (f TLSFiles) Load() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	return cfg, f.Into(cfg)
}

// Into is Load into a configuration that has more than that.
func (f TLSFiles) Into(cfg *tls.Config) error {
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", f.ca, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("parameter %s: %s holds no PEM certificate", f.ca, f.CA)
		}
	}
	switch {
	case f.Cert+f.Key == "":
		return nil
	case f.Cert == "" || f.Key == "":
		return fmt.Errorf("the parameters %s and %s go together", f.cert, f.key)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return fmt.Errorf("parameters %s and %s: %w", f.cert, f.key, err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return nil
}

// InTheClear reports whether what is sent to an endpoint can be read on its way: by HTTP
// without TLS, and not to this machine.
func InTheClear(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
