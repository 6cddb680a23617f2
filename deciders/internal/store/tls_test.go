package tlsfiles_test

import (
	"os"
	"strings"
	"testing"

	"github.com/c8e606e4/leaderelection/deciders/internal/tlsfiles"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
)

func TestLoad(t *testing.T) {
	a := feedtest.NewAuthority(t, "client", "other")
	all := tlsfiles.Files{CA: a.Path("ca.pem"), Cert: a.Path("client.pem"), Key: a.Path("client.key")}
	if cfg, err := all.Load(); err != nil || cfg.RootCAs == nil || len(cfg.Certificates) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
	if cfg, err := (tlsfiles.Files{}).Load(); err != nil || cfg.RootCAs != nil || len(cfg.Certificates) != 0 {
		t.Errorf("of no files: %+v, %v", cfg, err)
	}
	for want, f := range map[string]tlsfiles.Files{
		"cacert: open /no/such/file": {CA: "/no/such/file"},
		"no PEM certificate":         {CA: os.DevNull},
		"cert and cert_key":          {Cert: a.Path("client.pem")},
		"does not match":             {Cert: a.Path("client.pem"), Key: a.Path("other.key")},
	} {
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), want) || f.None() {
			t.Errorf("%+v: %v; want %q", f, err, want)
		}
	}
}
