package natskv_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// at returns the URL of path at a server, with user info where given.
func at(t *testing.T, s *inProcess, user *url.Userinfo, path string) *url.URL {
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
	s := startServer(t)
	d := opened(t, at(t, s, nil, "/made/services/web.1?create=true&storage=memory&replicas=1&description=who+leads"))
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	kv, err := s.client(t).KeyValue(t.Context(), "made")
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if c := status.Config(); err != nil || c.Storage != jetstream.MemoryStorage || c.Replicas != 1 || c.Description != "who leads" || c.TTL != 0 {
		t.Errorf("made %+v, %v", c, err)
	}
	if _, err := kv.Get(t.Context(), "services/web.1"); err != nil {
		t.Error(err)
	}

	// Without create, and with one that is there, it is used as it is.
	for _, query := range []string{"", "?create=false", "?create=true&storage=file&replicas=1"} {
		feedtest.Reads(t, opened(t, at(t, s, nil, "/made/services/web.1"+query)), 1)
	}
	feedtest.Refuses(t, opened(t, at(t, s, nil, "/missing/key")), "nats kv add")

	if err := d.Close(); err != nil {
		t.Error(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "closed")
	own := natskv.NewDecider(s.client(t), "made", "key", nil)
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
	byUser := startServer(t, configured(t, `accounts { main { jetstream: enabled, users: [
		{user: u, password: "p:/@"}, {nkey: "`+public+`"}
	] } }`))
	byToken := startServer(t, configured(t, `authorization { token: "t/k" }`))

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
	plain := startServer(t)
	secure := startServer(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, a.ServerTLS("server"), 5 })
	for want, s := range map[string]*inProcess{"secure connection not available": plain, "certificate": secure} {
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
	s := startServer(t, configured(t, `operator: `+encode(oc, operator)+`
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
	stores.Nightly(t, "the client connects again after a second")
	for _, user := range []bool{true, false} {
		save := contexts(t)
		secret := "first"
		var options *server.Options
		renew := func() {
			var saved map[string]any
			if user {
				options.Username, options.Password = "u", secret
				saved = map[string]any{"user": "u", "password": secret}
			} else {
				options.Authorization = secret
				saved = map[string]any{"token": secret}
			}
			save("mine", saved)
		}
		s := startServer(t, func(o *server.Options) { options = o; renew() })
		d := opened(t, at(t, s, nil, "/b/k?create=true&context=mine"))
		feedtest.Read(t, d)
		secret = "second"
		s.Stop()
		renew()
		s.Start(t)
		feedtest.Eventually(t, "it is read", func() bool { return feedtest.ReadError(t, d) == nil })
	}
}

// A context of the nats command line fills in what the URL leaves out.
func TestOpenByContext(t *testing.T) {
	s := startServer(t, configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: p}] } }`))
	save := contexts(t)
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
	s := startServer(t, configured(t, `accounts { main { jetstream: enabled, users: [{user: u, password: p, permissions: {
		publish: ["$JS.API.STREAM.INFO.KV_b", "$JS.API.DIRECT.GET.KV_b.$KV.b.k", "$KV.b.k", "$JS.API.CONSUMER.CREATE.KV_b.*.$KV.b.k",
			"$JS.API.INFO", "$JS.API.STREAM.CREATE.KV_b"]
		subscribe: ["_MINE.>"]
	}}] } }`), func(o *server.Options) { o.JetStreamDomain = "hub" })
	u := at(t, s, url.UserPassword("u", "p"), "/b/k?create=true&domain=hub&inbox_prefix=_MINE")
	candidate(t, opened(t, u))
	u.RawQuery = "domain=elsewhere&inbox_prefix=_MINE"
	feedtest.Permanent(t, feedtest.ReadError(t, opened(t, u)), "b", "k", "$JS.elsewhere.API")
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
	s := startServer(t)
	u := at(t, s, nil, "/b/k")
	s.Stop()
	if _, err := natskv.Open(t.Context(), u); err == nil || errors.Is(err, leaderelection.ErrPermanent) {
		t.Errorf("Open = %v, want an error that may pass", err)
	}
	// A further server will do.
	more := startServer(t)
	u.RawQuery = "create=true&server=127.0.0.1:1&server=" + strings.TrimPrefix(more.ClientURL(), "nats://")
	feedtest.Read(t, opened(t, u))
}

// contexts returns what saves a context of the nats command line, for this test only.
func contexts(t *testing.T) (save func(name string, fields map[string]any)) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return func(name string, fields map[string]any) {
		t.Helper()
		path := filepath.Join(dir, "nats", "context")
		data, err := json.Marshal(fields)
		if err == nil {
			err = errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, name+".json"), data, 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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
	s := startServer(t, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout = true, a.ServerTLS("server"), 5 })
	q := url.Values{"create": {"true"}, "tls_ca": {a.Path("ca.pem")}, "tls_cert": {a.Path("candidate.pem")}, "tls_key": {a.Path("candidate.key")}}
	d := opened(t, at(t, s, nil, "/made/web?"+q.Encode()))
	token := feedtest.Write(t, d, 1, nil)
	a.Renew()
	s.Stop()
	s.Start(t)
	feedtest.Eventually(t, "the client finds the server again", func() bool { return feedtest.ReadError(t, d) == nil })
	feedtest.Write(t, d, 2, token)
	feedtest.Number(t, feedtest.Follow(t, d), 2)
}

// The subjects that the package comment lists, for the bucket and key of these
// tests.
var (
	lookUp = "$JS.API.STREAM.INFO.KV_elections"
	get    = "$JS.API.DIRECT.GET.KV_elections.$KV.elections.billing"
	put    = "$KV.elections.billing"
	watch  = "$JS.API.CONSUMER.CREATE.KV_elections.*.$KV.elections.billing"
	make1  = "$JS.API.INFO"
	make2  = "$JS.API.STREAM.CREATE.KV_elections"
)

// restricted returns a client of a user "u" that may publish to these subjects
// and receive answers by inbox, and one of a user that may do anything.
func restricted(t *testing.T, inbox string, publish ...string) (user, admin jetstream.JetStream) {
	t.Helper()
	s := startServer(t, configured(t, fmt.Sprintf(`accounts { main { jetstream: enabled, users: [
		{user: admin, password: p},
		{user: u, password: p, permissions: {publish: ["%s"], subscribe: [%q]}}
	] } }`, strings.Join(publish, `", "`), inbox)))
	return s.client(t, nats.UserInfo("u", "p")), s.client(t, nats.UserInfo("admin", "p"))
}

// What the package comment lists is enough.
func TestPermissionsListedSuffice(t *testing.T) {
	user, admin := restricted(t, "_INBOX.>", lookUp, get, put, watch)
	makeBucket(t, admin)
	candidate(t, natskv.NewDecider(user, bucket, key, nil))
	user, _ = restricted(t, "_INBOX.>", lookUp, get, put, watch, make1, make2) // to create
	candidate(t, natskv.NewDecider(user, bucket, key, &natskv.Options{Create: &jetstream.KeyValueConfig{Replicas: 1}}))
}

// candidate does with d all that a campaign does.
func candidate(t *testing.T, d *natskv.Decider) {
	t.Helper()
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 0)
	feedtest.Write(t, d, 2, feedtest.Write(t, d, 1, feedtest.Read(t, d).Token))
	loses(t, d, nil)
	n := feedtest.Next(t, feed)
	for n.Err == nil && n.ElectionNumber < 2 {
		n = feedtest.Next(t, feed)
	}
	if n.Err != nil {
		t.Fatalf("Changes: %v", n.Err)
	}
}

// What is not permitted is an ErrPermanent that names it, long before the call's
// time is over, though the server answers no such request.
func TestPermissionMissing(t *testing.T) {
	for _, c := range []struct {
		name, inbox string
		publish     []string
		fail        string // what fails
		say         string
	}{
		{"look up", "_INBOX.>", []string{get, put, watch}, "ReadCurrent WriteEntry Changes", lookUp},
		{"read", "_INBOX.>", []string{lookUp, put, watch}, "ReadCurrent", get},
		{"write", "_INBOX.>", []string{lookUp, get, watch}, "WriteEntry", put},
		{"follow", "_INBOX.>", []string{lookUp, get, put}, "Changes", "$JS.API.CONSUMER.CREATE.KV_elections"},
		{"answers", "_ELSEWHERE.>", []string{lookUp, get, put, watch}, "ReadCurrent WriteEntry Changes", "_INBOX"},
	} {
		t.Run(c.name, func(t *testing.T) {
			user, admin := restricted(t, c.inbox, c.publish...)
			kv := makeBucket(t, admin)
			d := natskv.NewDecider(user, bucket, key, nil)
			begin := time.Now()
			for i, err := range feedtest.Errors(t, d) {
				what := []string{"ReadCurrent", "WriteEntry", "Changes"}[i]
				if !strings.Contains(c.fail, what) {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					continue
				}
				feedtest.Permanent(t, err, bucket, key, c.say)
				feedtest.Denied(t, err)
				if !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s hides what the client said: %v", what, err)
				}
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("it took %v to say so", took)
			}
			if _, err := kv.Get(t.Context(), key); strings.Contains(c.fail, "WriteEntry") && !errors.Is(err, jetstream.ErrKeyNotFound) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// A permission that was missing, and has been given since, is not held against
// later failures.
func TestPermissionMissingIsForgotten(t *testing.T) {
	user, admin := restricted(t, "_INBOX.>", lookUp, get, watch, "$KV.elections.billing2")
	makeBucket(t, admin)
	d := natskv.NewDecider(user, bucket, key, nil)
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, nil))
	feedtest.Read(t, d)
	if err := admin.DeleteKeyValue(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	if err := feedtest.ReadError(t, d); err == nil || errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("ReadCurrent = %v", err)
	}
}
