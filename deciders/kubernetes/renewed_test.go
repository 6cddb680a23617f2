package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// authority makes one, and a certificate of it for this machine.
func authority(t *testing.T) (ca []byte, pair *tls.Certificate) {
	t.Helper()
	sign := func(c, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	rootDER, rootKey := sign(root, root, nil)
	der, key := sign(&x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, root, rootKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A candidate goes on when the API server has another certificate, or takes another token,
// and the files say so: those that the kubeconfig names, and the kubeconfig itself.
func TestRenewed(t *testing.T) {
	s := newImitation()
	var serves atomic.Pointer[tls.Certificate]
	var token atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token.Load().(string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
			return
		}
		a, err := s.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.StatusCode)
		_, _ = io.Copy(w, a.Body)
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*serves.Load()}}, nil
	}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	renew := func(t *testing.T, as string) (ca []byte) {
		ca, pair := authority(t)
		serves.Store(pair)
		token.Store(as)
		server.CloseClientConnections()
		return ca
	}
	renew(t, "")
	server.StartTLS()
	defer server.Close()
	for name, embedded := range map[string]bool{"files of their own": false, "in the kubeconfig": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(file, text string) string {
				file = filepath.Join(dir, file)
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				return file
			}
			config := func(ca []byte, token string) string {
				named := fmt.Sprintf(`"certificate-authority":%q`, write("ca.crt", string(ca)))
				if embedded {
					named = fmt.Sprintf(`"certificate-authority-data":%q`, base64.StdEncoding.EncodeToString(ca))
				}
				return write("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test","clusters":[{"name":"test","cluster":{"server":%q,%s}}],
"users":[{"name":"test","user":{"token":%q}}],"contexts":[{"name":"test","context":{"cluster":"test","user":"test"}}]}`, server.URL, named, token))
			}
			d := opened(t, "kubernetes://default/one?kubeconfig="+config(renew(t, "first"), "first"))
			feedtest.Read(t, d)
			for _, c := range []struct{ as, says string }{{"first", "certificate"}, {"second", "credentials"}} {
				ca := renew(t, c.as)
				if c.as == "second" {
					config(ca, "first") // the token's turn
				}
				_, err := d.ReadCurrent(t.Context())
				if err == nil || c.as == "second" && strings.Contains(err.Error(), "certificate") {
					_, err = d.ReadCurrent(t.Context()) // the authority is renewed, the token is not
				}
				feedtest.Permanent(t, err, c.says)
				config(ca, c.as)
				feedtest.Read(t, d)
			}
		})
	}
}
