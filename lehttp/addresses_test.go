//go:build go1.25

package lehttp_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	le "github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/test/suite/logtest"
	"github.com/c8e606e4/leaderelection/lehttp"
)

// A record with several ports has one for the Proxy and the Redirect: by number, by name, or
// as the program likes. What is chosen must be fit to be dialled and allowed, like a HostPort.
func TestAddresses(t *testing.T) {
	app, admin := server(t, says("app")), server(t, says("admin"))
	_, port, err := net.SplitHostPort(address(admin))
	if err != nil {
		t.Fatal(err)
	}
	e := record(1, "a", address(app), address(admin))
	e.ConnectionParams = []byte(`{"x": 1, "addresses": {"admin": ["` + address(admin) + `"], "bad": ["169.254.169.254:80"], "worse": ["x/y?:80"], "none": []}}`)
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	r.News(e)
	for _, c := range []struct {
		name   string
		choose func(le.RaceEntry) []string
		want   string
	}{
		{"none chosen", nil, "app"},
		{"by port", lehttp.Port(port), "admin"},
		{"by name", lehttp.Named("admin"), "admin"},
		{"by hand", func(e le.RaceEntry) []string { return e.HostPort[1:] }, "admin"},
		{"a port of nobody's", lehttp.Port("1"), ""},
		{"a name of nobody's", lehttp.Named("other"), ""},
		{"a name without addresses", lehttp.Named("none"), ""},
		{"an address that is refused", lehttp.Named("bad"), ""},
		{"an address that is none", lehttp.Named("worse"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logged logtest.Log
			front := proxy(t, r, &lehttp.ProxyOptions{Addresses: c.choose, Wait: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			res, text := ask(t, client(t), http.MethodGet, front.URL, nil)
			to := server(t, r.Redirect(&lehttp.RedirectOptions{Addresses: c.choose}))
			away, _ := ask(t, client(t), http.MethodGet, to.URL, nil)
			if c.want == "" {
				if res.StatusCode != http.StatusServiceUnavailable || away.StatusCode != http.StatusServiceUnavailable || logged.String() == "" {
					t.Errorf("proxy %s %q, redirect %s, log %q", res.Status, text, away.Status, logged.String())
				}
				return
			}
			where := map[string]string{"app": address(app), "admin": address(admin)}[c.want]
			if text != c.want || away.Header.Get("Location") != "http://"+where+"/" {
				t.Errorf("proxy %s %q, redirect to %s", res.Status, text, away.Header.Get("Location"))
			}
		})
	}
}

// What a leader announces while it leads is followed, and what was known of the way with it.
func TestAddressesThatChangeWhileLeading(t *testing.T) {
	old, now := server(t, says("old")), server(t, says("new"))
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	e := record(1, "a", address(old))
	r.News(e)
	front := proxy(t, r, nil)
	for _, want := range []string{"old", "old", "new"} {
		if want == "new" {
			e.HostPort = []string{address(now)}
		}
		e.Extension++
		r.News(e)
		if _, text := ask(t, client(t), http.MethodGet, front.URL, nil); text != want {
			t.Errorf("%q answers, want %s", text, want)
		}
	}
}

// authority signs the certificates of one test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	pair := a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	var err error
	if a.cert, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	a.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.Subject = pkix.Name{CommonName: "test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serve starts a candidate with a certificate for name.
func (a *authority) serve(t *testing.T, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(says(name))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}})}}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// With TLSFor each leader is asked for a certificate of its own, on connections of its own: one
// that was deposed answers for nobody, not even at the same address. With TLS all are
// asked for the same.
func TestTLSForEachLeader(t *testing.T) {
	ca := newAuthority(t)
	a, b := ca.serve(t, "a"), ca.serve(t, "b")
	at := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "https://") }
	r := lehttp.NewRouter(le.Config{MaxClockSkew: S})
	asked := 0
	fault := error(nil)
	each := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, TLSFor: func(e le.RaceEntry) (*tls.Config, error) {
		asked++
		return &tls.Config{RootCAs: ca.pool, ServerName: e.LeaderID}, fault
	}})
	all := proxy(t, r, &lehttp.ProxyOptions{Wait: -1, TLS: &tls.Config{RootCAs: ca.pool, ServerName: "a"}})
	expect := func(front *httptest.Server, status int, text string) {
		t.Helper()
		if res, got := ask(t, client(t), http.MethodGet, front.URL, nil); res.StatusCode != status || status == http.StatusOK && got != text {
			t.Errorf("%s %q, want %d %q", res.Status, got, status, text)
		}
	}
	e := record(1, "a", at(a))
	r.News(e)
	expect(each, http.StatusOK, "a")
	e.Extension++
	r.News(e)
	expect(each, http.StatusOK, "a")
	expect(all, http.StatusOK, "a")
	if asked != 1 {
		t.Errorf("TLSFor was asked %d times in a leadership", asked)
	}
	r.News(record(2, "b", at(b)))
	expect(each, http.StatusOK, "b")
	expect(all, http.StatusBadGateway, "")
	r.News(record(3, "c", at(b)))
	expect(each, http.StatusBadGateway, "") // what answers there is b
	fault = errors.New("no certificate")
	e = record(4, "a", at(a))
	r.News(e)
	expect(each, http.StatusServiceUnavailable, "")
	fault = nil
	e.Extension++
	r.News(e)
	expect(each, http.StatusOK, "a") // asked again with each record
}
