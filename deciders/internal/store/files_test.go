package store_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// files are those that a URL with these parameters names.
func files(t *testing.T, ca, cert, key string) store.TLSFiles {
	t.Helper()
	q := url.Values{}
	for name, v := range map[string]string{"tls_ca": ca, "tls_cert": cert, "tls_key": key} {
		if v != "" {
			q.Set(name, v)
		}
	}
	p, err := store.ParseParams(&url.URL{RawQuery: q.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	f := p.TLSFiles()
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
		"tls_ca: open /no/such/file":     files(t, "/no/such/file", "", ""),
		"no PEM certificate":             files(t, os.DevNull, "", ""),
		"tls_cert and tls_key go toget":  files(t, "", a.Path("client.pem"), ""),
		"tls_cert and tls_key go togeth": files(t, "", "", a.Path("client.key")),
		"tls_cert and tls_key: tls: pri": files(t, "", a.Path("client.pem"), a.Path("other.key")),
	} {
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), want) || f.None() {
			t.Errorf("%+v: %v; want %q", f, err, want)
		}
	}
}

// A file implies TLS, and contradicts tls=false.
func TestTLSParameters(t *testing.T) {
	a := feedtest.NewAuthority(t)
	ca := "&tls_ca=" + url.QueryEscape(a.Path("ca.pem"))
	for query, want := range map[string]struct {
		on   bool
		says string
	}{
		"":                {},
		"tls=false":       {},
		"tls=true":        {on: true},
		ca:                {on: true},
		"tls=true" + ca:   {on: true},
		"tls=false" + ca:  {on: true, says: "leave out tls=false"},
		"tls=maybe" + ca:  {on: true, says: "true or false"},
		"tls_ca=/no/file": {on: true, says: "/no/file"},
		"tls_cert=/a":     {on: true, says: "go together"},
	} {
		p, err := store.ParseParams(&url.URL{RawQuery: query})
		if err != nil {
			t.Fatal(err)
		}
		on, files := p.TLS()
		err = p.Rest()
		if on != want.on || on == files.None() && query != "tls=true" || (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, %+v, %v; want %+v", query, on, files, err, want)
		}
	}
}

// An error names what was reached: the dial, or the handshake with what says nothing.
func TestDialTLSNamesThePhase(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"TLS handshake with " + l.Addr().String(), "dial tcp"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := store.TLSFiles{}.Dial(ctx, nil, "tcp", l.Addr().String())
		cancel()
		if err == nil || !strings.Contains(err.Error(), phase) {
			t.Errorf("%v, want it to say %s", err, phase)
		}
		_ = l.Close()
	}
}

// It is made again once for each distrust, and stays as it was while the files cannot be read.
func TestRenewed(t *testing.T) {
	made, unread := 1, error(nil)
	r := store.NewRenewed(made, func(context.Context) (int, error) {
		if unread == nil {
			made++
		}
		return made, unread
	})
	get := func(what string, want int) {
		t.Helper()
		if got := r.Get(t.Context()); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	get("at first", 1)
	r.Distrust()
	r.Distrust()
	get("distrusted", 2)
	get("trusted again", 2)
	unread = errors.New("no such file")
	r.Distrust()
	get("unreadable", 2)
	unread = nil
	get("readable again", 3)
	get("trusted again", 3)
}
