package rethinkdb_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/rethinkdb"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestOpen(t *testing.T) {
	s := imitate(t)
	s.password = "s3/cret"
	at := "rethinkdb://admin:s3%2Fcret@" + s.addr + "/ops/elections/a%20b/c"
	d := opened(t, at+"?timeout=2s&discover=false")
	if want := `RethinkDB ops.elections id "a b/c" at ` + s.addr; d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	if s.rows["a b/c"] == nil {
		t.Errorf("there are %v", s.rows)
	}

	s.tables = 0
	feedtest.Permanent(t, feedtest.ReadError(t, opened(t, at)), "create", "tableCreate")
	_, err := open(t.Context(), at+"?create=true") // no process does it by the way
	feedtest.Permanent(t, err, "create")

	_, err = open(t.Context(), "rethinkdb://admin:wr0ng@"+s.addr+"/ops/elections/web")
	feedtest.Denied(t, err, "password")
	if strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a secret in the error: %v", err)
	}
}

// TLS both ways, and a password: the server shows a certificate, and demands one.
func TestTLS(t *testing.T) {
	ca, other := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "client")
	s := imitateTLS(t, ca.ServerTLS("server"))
	s.password = "s3cret"
	at := "rethinkdb://admin:s3cret@" + s.addr + "/ops/elections/web?"
	authority, own := "&tls_ca="+ca.Path("ca.pem"), "&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key")
	d := opened(t, at+authority+own)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feedtest.Number(t, feed, 1)

	for what, c := range map[string]struct{ address, word string }{
		"an authority that the system does not know": {at + "tls=true" + own, "tls_ca"},
		"another's authority":                        {at + "tls_ca=" + other.Path("ca.pem") + own, "tls_ca"},
		"no certificate of one's own":                {at + authority, "certificate"},
		"another's certificate":                      {at + authority + "&tls_cert=" + other.Path("client.pem") + "&tls_key=" + other.Path("client.key"), "certificate"},
		"the key of another certificate":             {at + authority + "&tls_cert=" + ca.Path("client.pem") + "&tls_key=" + ca.Path("server.key"), "tls_key"},
		"a wrong password":                           {strings.Replace(at, "s3cret", "s3cret-not", 1) + authority + own, "password"},
		"another user":                               {strings.Replace(at, "admin", "somebody", 1) + authority + own, "user"},
	} {
		_, err := open(t.Context(), c.address)
		feedtest.Permanent(t, err, c.word)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: a secret in the error: %v", what, err)
		}
	}
	_, err := open(t.Context(), "rethinkdb://"+imitate(t).addr+"/ops/elections/web?tls=true")
	feedtest.Permanent(t, err, "does not speak TLS")
	// The other way round there is no telling what speaks there.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := open(ctx, at); err == nil {
		t.Error("a server that speaks TLS understands a client that does not")
	}
}

func TestOpenWithoutServer(t *testing.T) {
	_, err := open(t.Context(), "rethinkdb://127.0.0.1:1/ops/elections/web")
	feedtest.Passing(t, err)
	feedtest.Says(t, err, "127.0.0.1:1")

	// One that accepts and says nothing.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 10)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := open(ctx, "rethinkdb://"+l.Addr().String()+"/ops/elections/web"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Open: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Open took %v", took)
	}
	l.Close()
	for c := range accepted {
		c.Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, rethinkdb.Open, map[string]string{
		"https://h/d/t/e":                                 "scheme",
		"rethinkdb:///d/t/e":                              "host",
		"rethinkdb://h/d/t":                               "table",
		"rethinkdb://h//t/e":                              "table",
		"rethinkdb://,h/d/t/e":                            "no name",
		"rethinkdb://h/d/t/e#f":                           "%23",
		"rethinkdb://h/d/t/e?frobnicate=1":                "frobnicate",
		"rethinkdb://h/d/t/e?tls=perhaps":                 "tls",
		"rethinkdb://h/d/t/e?discover=true":               "name each server",
		"rethinkdb://h/d/t/e?timeout=-1s":                 "timeout",
		"rethinkdb://h/d/t/e?timeout=soon":                "timeout",
		"rethinkdb://h/d/t/e?create=true":                 "create",
		"rethinkdb://h/d/t/e?tls_ca=/no/such/file":        "/no/such/file",
		"rethinkdb://h/d/t/e?tls=false&tls_ca=/dev/null":  "leave out tls=false",
		"rethinkdb://h/d/t/e?tls_ca=/dev/null":            "PEM",
		"rethinkdb://h/d/t/e?tls_cert=/no/such/file":      "cert",
		"rethinkdb://me:s3cret@h/d/t/e?frobnicate=s3cret": "xxxxx",
	})
}
