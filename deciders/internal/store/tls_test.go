package store_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
)

// files are those that a URL with these parameters names.
func files(t *testing.T, ca, cert, key string) store.TLSFiles {
	t.Helper()
	q := url.Values{}
	for name, v := range map[string]string{"x_ca": ca, "x_cert": cert, "x_key": key} {
		if v != "" {
			q.Set(name, v)
		}
	}
	p, err := store.ParseParams(&url.URL{RawQuery: q.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	f := p.TLSFiles("x_ca", "x_cert", "x_key")
	if err := p.Rest(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTLSFiles(t *testing.T) {
	a := feedtest.NewAuthority(t, "client", "other")
	if cfg, err := files(t, a.Path("ca.pem"), a.Path("client.pem"), a.Path("client.key")).Load(); err != nil || cfg.RootCAs == nil || len(cfg.Certificates) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
	none := files(t, "", "", "")
	if cfg, err := none.Load(); err != nil || cfg.RootCAs != nil || len(cfg.Certificates) != 0 || !none.None() {
		t.Errorf("of no files: %+v, %v", cfg, err)
	}
	for want, f := range map[string]store.TLSFiles{
		"x_ca: open /no/such/file":   files(t, "/no/such/file", "", ""),
		"no PEM certificate":         files(t, os.DevNull, "", ""),
		"x_cert and x_key go toget":  files(t, "", a.Path("client.pem"), ""),
		"x_cert and x_key go togeth": files(t, "", "", a.Path("client.key")),
		"x_cert and x_key: tls: pri": files(t, "", a.Path("client.pem"), a.Path("other.key")),
	} {
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), want) || f.None() {
			t.Errorf("%+v: %v; want %q", f, err, want)
		}
	}
}
