package etcd_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

func TestOpen(t *testing.T) {
	server := stores.Etcd(t)
	c := client(t, server.Endpoint)
	for address, key := range map[string]string{
		"etcd://" + server.Endpoint + "/web":                                   "web",
		"etcd://" + server.Endpoint + "//elections/web?feed_grace=250ms":       "/elections/web",
		"etcd://" + server.Endpoint + ",127.0.0.1:1/elections%2Fa%20b%3Fc":     "elections/a b?c",
		"etcd://ignored:secret@" + server.Endpoint + "/without/authentication": "without/authentication",
	} {
		d := ec.Opened(t, address)
		feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
		if got, err := c.Get(t.Context(), key); err != nil || got.Count != 1 {
			t.Errorf("%s: key %q: %v, %v", address, key, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, etcd.Open, map[string]string{
		"https://h:2379/k":                       "scheme",
		"etcd:///k":                              "host",
		"etcd://h:2379":                          "key",
		"etcd://h:2379/":                         "key",
		"etcd://,h:2379/k":                       "no name",
		"etcd://h/k#x":                           "%23",
		"etcd://h/k?frobnicate=1":                "frobnicate",
		"etcd://h/k?feed_grace=soon":             "feed_grace",
		"etcd://h/k?feed_grace=-1s":              "feed_grace",
		"etcd://h/k?feed_grace=1s&feed_grace=2s": "feed_grace",
		"etcd://h/k?server_name=x":               "etcds://",
		"etcd://h/k?tls_ca=/no/such/file":        "/no/such/file",
		"etcds://h/k?tls_ca=/no/such/file":       "/no/such/file",
		"etcds://h/k?tls_ca=/dev/null":           "PEM",
		"etcds://h/k?tls_cert=/no/such/file":     "cert",
		"etcd://me:s3cret@h/k?frobnicate=1":      "xxxxx",
		"etcd://me:s3cret@h/k?frobnicate=s3cret": "frobnicate",
	})
}

// A password makes Open log in, which obeys ctx.
func TestOpenWithoutServer(t *testing.T) {
	begin := time.Now()
	_, err := open(storetest.Within(t, 200*time.Millisecond), "etcd://me:s3cret@127.0.0.1:1/k")
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("Open: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// With etcd's authentication on: what each user may do, and what the others are told.
func TestAuthentication(t *testing.T) {
	server := stores.Etcd(t)
	c := client(t, server.Endpoint)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	do(c.RoleAdd(ctx, "root"))
	do(c.UserAdd(ctx, "root", "r"))
	do(c.UserGrantRole(ctx, "root", "root"))
	for user, may := range map[string]clientv3.PermissionType{"candidate": clientv3.PermissionType(clientv3.PermReadWrite), "observer": clientv3.PermissionType(clientv3.PermRead)} {
		do(c.RoleAdd(ctx, user))
		do(c.RoleGrantPermission(ctx, user, "web", "", may))
		do(c.UserAdd(ctx, user, "pass/"+user))
		do(c.UserGrantRole(ctx, user, user))
	}
	do(c.UserAdd(ctx, "nobody", "n"))
	do(c.AuthEnable(ctx))

	at := func(user string) string {
		u := url.URL{Scheme: "etcd", Host: server.Endpoint, Path: "/web"}
		if user != "" {
			u.User = url.UserPassword(user, "pass/"+user)
		}
		return u.String()
	}
	candidate, observer := ec.Opened(t, at("candidate")), ec.Opened(t, at("observer"))
	feed := feedtest.Follow(t, observer)
	feedtest.Next(t, feed)
	feedtest.Write(t, candidate, 1, feedtest.Read(t, candidate).Token)
	feedtest.Number(t, feed, 1)
	warnings, err := candidate.Durability(ctx)
	feedtest.Warns(t, warnings, "one voting member")
	if err != nil {
		t.Error(err)
	}
	_, err = observer.WriteEntry(ctx, feedtest.State(2, feedtest.Read(t, observer).Token))
	feedtest.Denied(t, err, "permission denied", "grant", `"web"`)

	t.Setenv("ETCDCTL_USER", "candidate:pass/candidate")
	feedtest.Write(t, ec.Opened(t, at("")), 2, feedtest.Read(t, candidate).Token)
	t.Setenv("ETCDCTL_USER", "candidate")
	t.Setenv("ETCDCTL_PASSWORD", "pass/candidate")
	feedtest.Write(t, ec.Opened(t, at("")), 3, feedtest.Read(t, candidate).Token)
	t.Setenv("ETCDCTL_USER", "")

	_, err = ec.Opened(t, at("")).ReadCurrent(ctx)
	feedtest.Denied(t, err, "user")
	if n := feedtest.Next(t, feedtest.Follow(t, ec.Opened(t, at("")))); !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed of nobody in particular yields %+v", n)
	}
	nobody := url.URL{Scheme: "etcd", Host: server.Endpoint, Path: "/web", User: url.UserPassword("nobody", "n")}
	_, err = ec.Opened(t, nobody.String()).ReadCurrent(ctx)
	feedtest.Denied(t, err, "permission denied")
	nobody.User = url.UserPassword("nobody", "s3cret")
	_, err = open(ctx, nobody.String())
	feedtest.Denied(t, err, "password")
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a secret in the error: %v", err)
	}
}

// The same names on other servers are another election: String says where it is, and as whom nobody.
func TestPlace(t *testing.T) {
	const want = `etcd key "web" at a:1,b:2`
	if d := ec.Opened(t, "etcds://a:1,b:2/web"); d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}

// says fails the test if a call without an answer does not say what it was, where,
// and why, or takes long after its ctx has ended.
func says(t *testing.T, d *etcd.Decider, words ...string) {
	t.Helper()
	feedtest.TimesOut(t, 700*time.Millisecond, d, nil, append(words, d.String())...)
}

// saysFeed is says for the feed.
func saysFeed(t *testing.T, d *etcd.Decider, words ...string) {
	t.Helper()
	n := feedtest.Next(t, feedtest.Follow(t, d))
	feedtest.Passing(t, n.Err, append(words, "following", d.String())...)
}

// With TLS both ways, each thing that can be wrong is said: by calls, and by the feed.
func TestTLS(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	ca := feedtest.NewAuthority(t, "server", "client")
	other := feedtest.NewAuthority(t, "client")
	file := ca.Path
	server := stores.Etcd(t, "-cert", file("server.pem"), "-key", file("server.key"), "-cacert", file("ca.pem"))
	query := url.Values{"tls_ca": {file("ca.pem")}, "tls_cert": {file("client.pem")}, "tls_key": {file("client.key")}}
	at := "etcd://" + server.Endpoint + "/web?" // the files imply etcds
	d := ec.Opened(t, at+query.Encode())
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 1)
	query.Set("server_name", "localhost")
	feedtest.Read(t, ec.Opened(t, at+query.Encode()))

	for name, c := range map[string]struct {
		change url.Values
		words  []string
	}{
		"another name":        {url.Values{"server_name": {"elsewhere.example"}}, []string{"elsewhere.example", "server_name"}},
		"no authority":        {url.Values{"tls_ca": nil}, []string{"unknown authority", "tls_ca"}},
		"another's authority": {url.Values{"tls_ca": {other.Path("ca.pem")}}, []string{"unknown authority", "tls_ca"}},
		"no certificate":      {url.Values{"tls_cert": nil, "tls_key": nil}, []string{"tls_key"}},
		"another's":           {url.Values{"tls_cert": {other.Path("client.pem")}, "tls_key": {other.Path("client.key")}}, []string{"tls_key"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := maps.Clone(query)
			for parameter, value := range c.change {
				if q[parameter] = value; value == nil {
					q.Del(parameter)
				}
			}
			d := ec.Opened(t, at+q.Encode())
			says(t, d, c.words...)
			saysFeed(t, d, c.words...)

			// The same with a user, whom Open logs in.
			_, err := open(storetest.Within(t, 700*time.Millisecond), "etcds://me:s3cret@"+server.Endpoint+"/web?"+q.Encode())
			feedtest.Passing(t, err, append(c.words, "logging in", `"web"`)...)
		})
	}
	says(t, ec.Opened(t, "etcd://"+server.Endpoint+"/web"), "etcds://")
	says(t, ec.Opened(t, "etcds://"+stores.Etcd(t).Endpoint+"/web"), "does not speak TLS")
}

// If nothing listens, and if nothing answers.
func TestNoConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	for _, d := range []*etcd.Decider{ec.Opened(t, "etcd://127.0.0.1:1,127.0.0.1:2/k"), decider(t, "127.0.0.1:1")} {
		says(t, d, "connection refused", "endpoints")
		saysFeed(t, d, "connection refused", "endpoints")
	}
	_, err := open(storetest.Within(t, 700*time.Millisecond), "etcd://me:s3cret@127.0.0.1:1/k")
	feedtest.Passing(t, err, "connection refused", "endpoints", "logging in")

	proxy := stores.NewRelay(t, stores.Etcd(t).Endpoint)
	d := ec.Opened(t, "etcd://"+proxy.Addr+"/k")
	feedtest.Read(t, d)
	proxy.Cut()
	// A call that hears nothing drops the connection. On a busy machine something may still arrive after the first began.
	for range 3 {
		_, err = d.ReadCurrent(storetest.Within(t, 700*time.Millisecond))
		feedtest.Passing(t, err, d.String())
	}
	says(t, d, "there is no connection")
	proxy.Heal()
}

// Authority, certificate and key are replaced, and with them the server's: a client that
// was opened before goes on without a restart. Files that cannot be read for a moment
// cost nothing.
func TestRenewedCertificates(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	ca := feedtest.NewAuthority(t, "server", "client")
	server := stores.Etcd(t, "-cert", ca.Path("server.pem"), "-key", ca.Path("server.key"), "-cacert", ca.Path("ca.pem"))
	d := ec.Opened(t, "etcds://"+server.Endpoint+"/web?tls_ca="+ca.Path("ca.pem")+"&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key"))
	restart := func() { server.Stop(); server.Start(t) }
	storetest.Renewed(t, d, ca, restart)

	lost := ca.Path("client.key") + ".moved"
	if err := os.Rename(ca.Path("client.key"), lost); err != nil {
		t.Fatal(err)
	}
	restart()
	feedtest.Write(t, d, 3, feedtest.Read(t, d).Token)

	// What is wrong with the files is said, if the old ones do not do any more.
	if err := os.WriteFile(ca.Path("ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	says(t, d, "connection refused")
}
