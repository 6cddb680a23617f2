package etcd_test

import (
	"context"
	"maps"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// says fails the test if a call without an answer does not say what it was, where,
// and why, or takes long after its ctx has ended.
func says(t *testing.T, d *etcd.Decider, words ...string) {
	t.Helper()
	feedtest.TimesOut(t, 700*time.Millisecond, d, nil, append(words, d.Place())...)
}

// saysFeed is says for the feed.
func saysFeed(t *testing.T, d *etcd.Decider, words ...string) {
	t.Helper()
	n := feedtest.Next(t, feedtest.Follow(t, d))
	feedtest.Passing(t, n.Err, append(words, "following", d.Place())...)
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
	d := opened(t, at+query.Encode())
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feed := feedtest.Follow(t, d)
	feedtest.Number(t, feed, 1)
	query.Set("server_name", "localhost")
	feedtest.Read(t, opened(t, at+query.Encode()))

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
			d := opened(t, at+q.Encode())
			says(t, d, c.words...)
			saysFeed(t, d, c.words...)

			// The same with a user, whom Open logs in.
			ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
			_, err := open(ctx, "etcds://me:s3cret@"+server.Endpoint+"/web?"+q.Encode())
			cancel()
			feedtest.Passing(t, err, append(c.words, "logging in", `"web"`)...)
		})
	}
	says(t, opened(t, "etcd://"+server.Endpoint+"/web"), "etcds://")
	says(t, opened(t, "etcds://"+stores.Etcd(t).Endpoint+"/web"), "does not speak TLS")
}

// If nothing listens, and if nothing answers.
func TestNoConnection(t *testing.T) {
	stores.Nightly(t, "it cuts connections and waits")
	for _, d := range []*etcd.Decider{opened(t, "etcd://127.0.0.1:1,127.0.0.1:2/k"), etcd.NewDecider(client(t, "127.0.0.1:1"), "k", nil)} {
		says(t, d, "connection refused", "endpoints")
		saysFeed(t, d, "connection refused", "endpoints")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err := open(ctx, "etcd://me:s3cret@127.0.0.1:1/k")
	feedtest.Passing(t, err, "connection refused", "endpoints", "logging in")

	proxy := stores.NewRelay(t, stores.Etcd(t).Endpoint)
	d := opened(t, "etcd://"+proxy.Addr+"/k")
	feedtest.Read(t, d)
	proxy.Cut()
	ctx, cancel = context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err = d.ReadCurrent(ctx)
	feedtest.Passing(t, err, "not answered in time", d.Place())
	says(t, d, "no attempt has come to an end", "endpoints") // since the call before dropped the connection
	proxy.Heal()
}

// Authority, certificate and key are replaced, and with them the server's: a client that
// was opened before goes on without a restart. Files that cannot be read for a moment
// cost nothing.
func TestRenewedCertificates(t *testing.T) {
	stores.Nightly(t, "it waits for the client to give up")
	ca, next := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "server", "client")
	server := stores.Etcd(t, "-cert", ca.Path("server.pem"), "-key", ca.Path("server.key"), "-cacert", ca.Path("ca.pem"))
	d := opened(t, "etcds://"+server.Endpoint+"/web?tls_ca="+ca.Path("ca.pem")+"&tls_cert="+ca.Path("client.pem")+"&tls_key="+ca.Path("client.key"))
	token := feedtest.Write(t, d, 1, nil)

	lost := ca.Path("client.key") + ".moved"
	if err := os.Rename(ca.Path("client.key"), lost); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	server.Start(t)
	token = feedtest.Write(t, d, 2, token)

	for _, name := range []string{"ca.pem", "server.pem", "server.key", "client.pem", "client.key"} {
		if err := os.Rename(next.Path(name), ca.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	server.Stop()
	server.Start(t)
	feedtest.Write(t, d, 3, token)
	feedtest.Number(t, feedtest.Follow(t, d), 3)

	// What is wrong with the files is said, if the old ones do not do any more.
	if err := os.WriteFile(ca.Path("ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	says(t, d, "connection refused")
}
