package feedtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates for TLS on loopback. Its own is the file ca.pem; each that
// it issues is name.pem with name.key, and both of these in name.both.pem.
type Authority struct {
	t     testing.TB
	dir   string
	names []string
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
}

// NewAuthority makes one, and certificates of these names: for servers at 127.0.0.1 and
// localhost, and for clients whose user has the name.
func NewAuthority(t testing.TB, names ...string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), names: names}
	a.Renew()
	return a
}

// Renew replaces all files by those of a new authority: the old one's certificates are worth
// nothing any more.
func (a *Authority) Renew() {
	a.t.Helper()
	a.cert, a.key = nil, nil
	a.issue("ca")
	for _, name := range a.names {
		a.issue(name)
	}
}

// Path is where a file is.
func (a *Authority) Path(file string) string { return filepath.Join(a.dir, file) }

// ServerTLS is for a server that shows the certificate of this name, and demands one of
// its clients. It reads the files for each connection.
func (a *Authority) ServerTLS(name string) *tls.Config {
	return &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(a.Path(name+".pem"), a.Path(name+".key"))
		if err != nil {
			return nil, err
		}
		ca, err := os.ReadFile(a.Path("ca.pem"))
		clients := x509.NewCertPool()
		if err == nil && !clients.AppendCertsFromPEM(ca) {
			err = fmt.Errorf("%s has no certificate", a.Path("ca.pem"))
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}, err
	}}
}

// issue makes a certificate, the first one of itself.
func (a *Authority) issue(name string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	by, parent := a.key, a.cert
	if parent == nil {
		c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		by, parent = key, c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for file, content := range map[string][]byte{name + ".pem": cert, name + ".key": secret, name + ".both.pem": append(cert[:len(cert):len(cert)], secret...)} {
		if err := os.WriteFile(a.Path(file), content, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}
