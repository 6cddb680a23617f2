// Package tlsfiles makes a client's TLS configuration of files: those that the
// parameters cacert, cert and cert_key of a decider's URL name.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files are the paths of files in PEM form. Each may be empty.
type Files struct {
	CA   string // the authorities of the servers' certificates; empty: the system's
	Cert string // the client's certificate
	Key  string // its key
}

// None reports whether no file is named.
func (f Files) None() bool { return f == Files{} }

// Load reads the files as they are now. Call it for each connection, since certificates
// are renewed.
func (f Files) Load() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("parameter cacert: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter cacert: %s holds no PEM certificate", f.CA)
		}
	}
	if f.Cert+f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("parameters cert and cert_key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
