package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestOpen(t *testing.T) {
	server := stores.Postgres(t)
	host, port, _ := net.SplitHostPort(server.Addr)
	t.Setenv("PGUSER", "postgres")
	t.Setenv("PGHOST", host)
	t.Setenv("PGPORT", port)
	t.Setenv("PGDATABASE", "postgres")
	direct := url.QueryEscape("postgres://" + server.Addr + "/?sslmode=disable")
	d := opened(t, "postgres://"+server.Addr+"/postgres?sslmode=disable&election=web&create=true&feed_silence=1m&listen=true&pool_max_conns=2&application_name=me&connect_timeout=3&listen_url="+direct)
	feed := feedtest.Follow(t, d)
	feedtest.Write(t, d, 3, feedtest.Next(t, feed).Token)
	feedtest.Number(t, feed, 3)
	for _, address := range []string{
		"postgresql://" + server.Addr + "?election=web",
		"postgres:///postgres?election=web&table=leaderelection&create=false",
		"postgres:///?election=web&table=public.leaderelection&listen=false",
	} {
		feedtest.Reads(t, opened(t, address), 3)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "closed pool")
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, postgres.Open, map[string]string{
		"mysql://localhost?election=e":                                                                   "scheme",
		"postgres://localhost/db":                                                                        "?election=",
		"postgres://localhost/db?election=":                                                              "?election=",
		"postgres://localhost/db?election=e#f":                                                           "%23",
		"postgres:?election=e":                                                                           "//",
		"postgres://localhost/db?election=e&election=f":                                                  `"election" is given 2 times`,
		"postgres://localhost/db?election=e&sslmode=disable&sslmode=require":                             `"sslmode" is given 2 times`,
		"postgres://localhost/db?election=e&colour=red":                                                  `no parameter "colour"`,
		"postgres://localhost/db?election=e&create=perhaps":                                              `"create"`,
		"postgres://localhost/db?election=e&listen=perhaps":                                              `"listen"`,
		"postgres://localhost/db?election=e&feed_silence=5":                                              `"feed_silence"`,
		"postgres://localhost/db?election=e&feed_silence=-5s":                                            `"feed_silence"`,
		"postgres://localhost/db?election=e&sslmode=sometimes":                                           "sslmode",
		"postgres://localhost/db?election=e&sslmode=disable&tls_ca=/x":                                   "leave out sslmode=disable",
		"postgres://localhost/db?election=e&sslmode=prefer&tls_cert=/x&tls_key=/y":                       "leave out sslmode=prefer",
		"postgres://localhost/db?election=e&tls_ca=/no/such/file":                                        "/no/such/file",
		"postgres://localhost/db?election=e&pool_max_conns=many":                                         "pool_max_conns",
		"postgres://u:s3cret@localhost/db?election=e;x":                                                  "semicolon",
		"postgres://u:s3cret@localhost/db?election=e&sslmode=x&password=s3cret":                          "sslmode",
		"postgres://localhost/db?election=e&listen_url=postgres%3A%2F%2Fu%3As3cret%40h%2F%3Fsslmode%3Dx": `"listen_url"`,
	})
}

// A password by scram-sha-256, over TLS that checks the server's certificate, with a
// certificate of the client's own; and each of these wrong.
func TestAccess(t *testing.T) {
	dir := t.TempDir()
	ca := certificate(t, dir, "ca", nil)
	certificate(t, dir, "server", ca)
	certificate(t, dir, "candidate", ca)
	other := t.TempDir()
	certificate(t, other, "ca", nil)

	server := stores.Postgres(t)
	p := pool(t, server.Addr)
	exec(t, p, `CREATE ROLE app LOGIN PASSWORD 'secret'`)
	exec(t, p, `CREATE ROLE candidate LOGIN`)
	exec(t, p, `GRANT CREATE ON SCHEMA public TO app, candidate`)
	exec(t, p, `ALTER DEFAULT PRIVILEGES FOR ROLE app GRANT ALL ON TABLES TO candidate`)
	p.Close()
	for _, name := range []string{"server.pem", "server.key", "ca.pem"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		server.Give(t, name, content)
	}
	server.Set("ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key", "ssl_ca_file=ca.pem", "password_encryption=scram-sha-256")
	server.HBA(t, "hostssl all candidate 127.0.0.1/32 cert", "hostssl all all 127.0.0.1/32 scram-sha-256")

	at := func(user, more string) string {
		return "postgres://" + user + "@" + server.Addr + "/postgres?election=e&create=true" + more
	}
	verify := "&sslmode=verify-full&tls_ca=" + filepath.Join(dir, "ca.pem")
	d := opened(t, at("app:secret", verify+"&channel_binding=require"))
	feed := feedtest.Follow(t, d)
	token := feedtest.Write(t, d, 1, feedtest.Next(t, feed).Token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
		t.Errorf("%+v", n)
	}
	own := "&tls_cert=" + filepath.Join(dir, "candidate.pem") + "&tls_key=" + filepath.Join(dir, "candidate.key")
	token = feedtest.Write(t, opened(t, at("candidate", verify+own)), 2, token)
	if n := feedtest.Next(t, feed); n.Err != nil || n.Token != token {
		t.Errorf("%+v", n)
	}
	t.Setenv("PGPASSWORD", "secret")
	feedtest.Reads(t, opened(t, at("app", "&sslmode=require")), 2)
	t.Setenv("PGPASSWORD", "")

	// The authority's certificate may be renewed: the file is read for each connection.
	renewed := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, filepath.Join(other, "ca.pem"), renewed)
	late := opened(t, at("app:secret", "&tls_ca="+renewed))
	feedtest.Refuses(t, late, "certificate", "tls_ca")
	copyFile(t, filepath.Join(dir, "ca.pem"), renewed)
	feedtest.Reads(t, late, 2)

	for address, words := range map[string][]string{
		at("app:wr0ng", verify): {"28P01", "check user, password"},
		at("app", verify):       {"check user, password"},
		at("candidate", verify): {"28000", "check user, password"},
		at("app:secret", "&sslmode=verify-full&tls_ca="+filepath.Join(other, "ca.pem")): {"certificate", "tls_ca"},
		at("candidate", own):                 {"certificate", "tls_ca"},
		at("app:secret", "&sslmode=disable"): {"28000", "pg_hba.conf"},
		strings.Replace(at("app:secret", verify), "127.0.0.1", "localhost", 1): {"certificate", "tls_ca"},
	} {
		d := opened(t, address)
		feedtest.Refuses(t, d, words...)
		_, err := d.ReadCurrent(t.Context())
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("a password is in the error: %v", err)
		}
	}
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// certificate makes name.pem and name.key in dir, signed by ca, or by itself.
func certificate(t *testing.T, dir, name string, ca *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: ca == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	self := &authority{cert, key}
	if ca == nil {
		ca = self
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return self
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
