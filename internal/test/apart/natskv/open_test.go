package natskv_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/apart/natstest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// at returns the URL of path at a server, with user info where given.
func at(t *testing.T, s *natstest.Server, user *url.Userinfo, path string) *url.URL {
	t.Helper()
	u, err := url.Parse(s.ClientURL() + path)
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme, u.User = "nats", user // the server itself says tls if it demands that
	return u
}

// opened opens u, and closes it when the test ends.
func opened(t *testing.T, u *url.URL) *natskv.Decider {
	t.Helper()
	d, err := natskv.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestOpen(t *testing.T) {
	s := natstest.Start(t)
	d := opened(t, at(t, s, nil, "/made/services/web.1?create=true&storage=memory&replicas=1&description=who+leads"))
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	kv, err := s.JetStream(t).KeyValue(t.Context(), "made")
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := status.Config(); c.Storage != jetstream.MemoryStorage || c.Replicas != 1 || c.Description != "who leads" || c.TTL != 0 {
		t.Errorf("made %+v", c)
	}
	if _, err := kv.Get(t.Context(), "services/web.1"); err != nil {
		t.Error(err)
	}

	// Without create, and with one that is there, it is used as it is.
	for _, query := range []string{"", "?create=false", "?create=true&storage=file&replicas=1"} {
		if e := feedtest.Read(t, opened(t, at(t, s, nil, "/made/services/web.1"+query))); e.ElectionNumber != 1 {
			t.Errorf("%s: read %+v", query, e)
		}
	}
	if _, err := opened(t, at(t, s, nil, "/missing/key")).ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("a bucket that is missing: %v", err)
	}

	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.ReadCurrent(t.Context()); !errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("closed: %v", err)
	}
	own := natskv.NewDecider(s.JetStream(t), "made", "key", nil)
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	feedtest.Read(t, own) // whose connection is not ours to close
	want := `NATS bucket "made", key "key" at ` + strings.TrimPrefix(s.ClientURL(), "nats://")
	if own.String() != want {
		t.Errorf("%s, want %s", own, want)
	}
	if d := opened(t, at(t, s, nil, "/made/key?domain=hub")); d.String() != want+", JetStream domain hub" {
		t.Errorf("%s, want %s of a domain", d, want)
	}
}

func TestOpenRefusesAWrongURL(t *testing.T) {
	feedtest.OpenRefuses(t, natskv.Open, map[string]string{
		"http://127.0.0.1/b/k":                          "scheme",
		"nats://127.0.0.1":                              "/bucket/key",
		"nats://127.0.0.1/b":                            "/bucket/key",
		"nats://127.0.0.1/b/":                           "/bucket/key",
		"nats:///b/k":                                   "no host",
		"nats://127.0.0.1/b/k#f":                        "%23",
		"nats://127.0.0.1/b/k?ttl=3s":                   `no parameter "ttl"`,
		"nats://127.0.0.1/b/k?creds=a&creds=b":          `"creds" is given 2 times`,
		"nats://127.0.0.1/b/k?replicas=%zz":             "escape",
		"nats://127.0.0.1/b/k?replicas=3":               "create=true",
		"nats://127.0.0.1/b/k?create=yes":               "true or false",
		"nats://127.0.0.1/b/k?create=true&replicas=0":   "1 to 5",
		"nats://127.0.0.1/b/k?create=true&replicas=x":   "1 to 5",
		"nats://127.0.0.1/b/k?create=true&storage=disk": "file or memory",
		"nats://127.0.0.1/b/k?creds=/no/such/file":      "/no/such/file",
		"nats://127.0.0.1/b/k?nkey=/no/such/file":       "/no/such/file",
		"nats://127.0.0.1/b/k?tls_ca=/no/such/file":     "/no/such/file",
		"nats://127.0.0.1/b/k?tls=false&tls_ca=/x":      "leave out tls=false",
		"tls://127.0.0.1/b/k":                           "scheme",
		"nats://127.0.0.1/b/k?context=no-such-context":  "no-such-context",
		"nats://127.0.0.1/b/k?context=../x":             "no name of a context",
	})
}

func TestOpenAsAUser(t *testing.T) {
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := user.PublicKey()
	seed, _ := user.Seed()
	nkey := file(t, "user.nk", seed)
	byUser := natstest.Start(t, configured(t, `accounts { main { jetstream: enabled, users: [
		{user: u, password: "p:/@"}, {nkey: "`+public+`"}
	] } }`))
	byToken := natstest.Start(t, configured(t, `authorization { token: "t/k" }`))

	const path = "/b/k?create=true"
	feedtest.Read(t, opened(t, at(t, byUser, url.UserPassword("u", "p:/@"), path)))
	feedtest.Read(t, opened(t, at(t, byUser, nil, path+"&nkey="+nkey)))
	feedtest.Read(t, opened(t, at(t, byToken, url.User("t/k"), path)))

	for _, u := range []*url.URL{
		at(t, byUser, nil, path),
		at(t, byUser, url.UserPassword("u", "wrong-secret"), path),
		at(t, byToken, url.User("wrong-secret"), path),
	} {
		_, err := natskv.Open(t.Context(), u)
		feedtest.Permanent(t, err)
		if strings.Contains(err.Error(), "wrong-secret") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

// tls=true demands TLS, of the server and of its certificate.
func TestOpenWithTLS(t *testing.T) {
	a := feedtest.NewAuthority(t, "server")
	plain := natstest.Start(t)
	secure := natstest.Start(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, a.ServerTLS("server"), 5 })
	for want, s := range map[string]*natstest.Server{"secure connection not available": plain, "certificate": secure} {
		if _, err := natskv.Open(t.Context(), at(t, s, nil, "/b/k?tls=true")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %s", err, want)
		}
	}
}

// A creds file holds a JWT that the operator's server trusts.
func TestOpenWithCreds(t *testing.T) {
	operator, _ := nkeys.CreateOperator()
	account, _ := nkeys.CreateAccount()
	user, _ := nkeys.CreateUser()
	system, _ := nkeys.CreateAccount()
	public := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	encode := func(c interface {
		Encode(nkeys.KeyPair) (string, error)
	}, by nkeys.KeyPair) string {
		s, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	oc := jwt.NewOperatorClaims(public(operator))
	oc.SystemAccount = public(system)
	ac := jwt.NewAccountClaims(public(account))
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	s := natstest.Start(t, configured(t, `operator: `+encode(oc, operator)+`
		resolver: MEMORY
		system_account: `+public(system)+`
		resolver_preload: {
			`+public(account)+`: `+encode(ac, operator)+`
			`+public(system)+`: `+encode(jwt.NewAccountClaims(public(system)), operator)+`
		}`))
	seed, _ := user.Seed()
	creds, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(public(user)), account), seed)
	if err != nil {
		t.Fatal(err)
	}
	d := opened(t, at(t, s, nil, "/b/k?create=true&creds="+file(t, "user.creds", creds)))
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
}

// The password, or the token, is renewed in the context and at the server, which then starts again.
func TestRenewedContext(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: the client connects again after a second")
	}
	for _, user := range []bool{true, false} {
		dir := t.TempDir()
		t.Setenv("XDG_CONFIG_HOME", dir)
		path := filepath.Join(dir, "nats", "context")
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		secret := "first"
		var options *server.Options
		renew := func() {
			if user {
				options.Username, options.Password = "u", secret
			} else {
				options.Authorization = secret
			}
			saved := map[string]string{"token": secret}
			if user {
				saved = map[string]string{"user": "u", "password": secret}
			}
			data, err := json.Marshal(saved)
			if err == nil {
				err = os.WriteFile(filepath.Join(path, "mine.json"), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s := natstest.Start(t, func(o *server.Options) { options = o; renew() })
		d := opened(t, at(t, s, nil, "/b/k?create=true&context=mine"))
		feedtest.Read(t, d)
		secret = "second"
		s.Stop()
		renew()
		s.Start(t)
		feedtest.Eventually(t, "it is read", func() bool {
			_, err := d.ReadCurrent(t.Context())
			return err == nil
		})
	}
}

// A context of the nats command line fills in what the URL leaves out.
func TestOpenByContext(t *testing.T) {
	s := natstest.Start(t, configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: p}] } }`))
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	save := func(name string, fields map[string]any) {
		data, _ := json.Marshal(fields)
		path := filepath.Join(dir, "nats", "context")
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, name+".json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save("good", map[string]any{"description": "d", "url": s.ClientURL(), "user": "u", "password": "p", "nsc": "", "tls_first": false, "inbox_prefix": "_INBOX_u"})
	save("wrong-user", map[string]any{"url": s.ClientURL(), "user": "u", "password": "wrong"})
	save("elsewhere", map[string]any{"url": "nats://127.0.0.1:1", "user": "u", "password": "p"})
	save("nsc", map[string]any{"url": s.ClientURL(), "nsc": "nsc://o/a/u"})

	feedtest.Read(t, opened(t, &url.URL{Scheme: "nats", Path: "/b/k", RawQuery: "create=true&context=good"}))
	feedtest.Read(t, opened(t, at(t, s, url.UserPassword("u", "p"), "/b/k?context=wrong-user")))
	feedtest.Read(t, opened(t, at(t, s, nil, "/b/k?context=elsewhere")))
	for name, say := range map[string]string{"wrong-user": "uthorization", "nsc": "nsc"} {
		_, err := natskv.Open(t.Context(), &url.URL{Scheme: "nats", Path: "/b/k", RawQuery: "context=" + name})
		feedtest.Permanent(t, err, say)
	}
}

// A JetStream domain, and answers by subjects of one's own.
func TestOpenInADomain(t *testing.T) {
	s := natstest.Start(t, configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: p, permissions: {
		publish: ["$JS.API.STREAM.INFO.KV_b", "$JS.API.DIRECT.GET.KV_b.$KV.b.k", "$KV.b.k", "$JS.API.CONSUMER.CREATE.KV_b.*.$KV.b.k",
			"$JS.API.INFO", "$JS.API.STREAM.CREATE.KV_b"]
		subscribe: ["_MINE.>"]
	}}] } }`), func(o *server.Options) { o.JetStreamDomain = "hub" })
	u := at(t, s, url.UserPassword("u", "p"), "/b/k?create=true&domain=hub&inbox_prefix=_MINE")
	candidate(t, opened(t, u))
	u.RawQuery = "domain=elsewhere&inbox_prefix=_MINE"
	_, err := opened(t, u).ReadCurrent(t.Context())
	feedtest.Permanent(t, err, "b", "k", "$JS.elsewhere.API")
}

// Open gives up with its ctx, also on a server that accepts and then says nothing.
func TestOpenObeysItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
	defer cancel()
	begin := time.Now()
	_, err = natskv.Open(ctx, &url.URL{Scheme: "nats", Host: l.Addr().String(), Path: "/b/k"})
	if !errors.Is(err, cause) || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Open = %v", err)
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("after %v", took)
	}
}

func TestOpenFailsWhereNobodyListens(t *testing.T) {
	s := natstest.Start(t)
	u := at(t, s, nil, "/b/k")
	s.Stop()
	if _, err := natskv.Open(t.Context(), u); err == nil || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Open = %v, want an error that may pass", err)
	}
	// A further server will do.
	more := natstest.Start(t)
	u.RawQuery = "create=true&server=127.0.0.1:1&server=" + strings.TrimPrefix(more.ClientURL(), "nats://")
	feedtest.Read(t, opened(t, u))
}

// file writes a file for the test.
func file(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Authority, certificate and key are replaced, and with them the server's.
func TestRenewedCertificates(t *testing.T) {
	a := feedtest.NewAuthority(t, "server", "candidate")
	s := natstest.Start(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, a.ServerTLS("server"), 5 })
	q := url.Values{"create": {"true"}, "tls_ca": {a.Path("ca.pem")}, "tls_cert": {a.Path("candidate.pem")}, "tls_key": {a.Path("candidate.key")}}
	d := opened(t, at(t, s, nil, "/made/web?"+q.Encode()))
	token := feedtest.Write(t, d, 1, nil)
	a.Renew()
	s.Stop()
	s.Start(t)
	for range 300 { // while the client finds the server again
		if _, err := d.ReadCurrent(t.Context()); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	feedtest.Write(t, d, 2, token)
	feedtest.Number(t, feedtest.Follow(t, d), 2)
}
