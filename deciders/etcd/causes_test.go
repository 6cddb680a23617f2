package etcd_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/feedtest"
	"github.com/c8e606e4/leaderelection/internal/stores"
)

// says fails the test where a call without an answer does not say what it was, where,
// and why, or takes long after its ctx has ended; and where the feed does not say it.
func says(t *testing.T, what string, d *etcd.Decider, words ...string) {
	t.Helper()
	calls := map[string]func(ctx context.Context) error{
		"reading": func(ctx context.Context) error { _, err := d.ReadCurrent(ctx); return err },
		"writing": func(ctx context.Context) error { _, err := d.WriteEntry(ctx, feedtest.State(9, nil)); return err },
	}
	for doing, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s: %s took %v", what, doing, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, leaderelection.ErrPermanent) || errors.Is(err, leaderelection.ErrLostRace) {
			t.Errorf("%s: %s: %v", what, doing, err)
		}
		feedtest.Says(t, err, append(words, doing, d.Place())...)
	}
}

// saysFeed is says for the feed.
func saysFeed(t *testing.T, d *etcd.Decider, words ...string) {
	t.Helper()
	n := feedtest.Next(t, feedtest.Follow(t, d))
	feedtest.Passing(t, n.Err, append(words, "following", d.Place())...)
}

// With TLS both ways, each thing that can be wrong is said: by calls, and by the feed.
func TestTLS(t *testing.T) {
	ca := feedtest.NewAuthority(t, "server", "client")
	other := feedtest.NewAuthority(t, "client")
	file := ca.Path
	server := stores.Etcd(t, "-cert", file("server.pem"), "-key", file("server.key"), "-cacert", file("ca.pem"))
	query := url.Values{"cacert": {file("ca.pem")}, "cert": {file("client.pem")}, "cert_key": {file("client.key")}}
	at := "etcds://" + server.Endpoint + "/web?"
	d := opened(t, at+query.Encode())
	feedtest.Write(t, d, 1, feedtest.Read(t, d).Token)
	feed := feedtest.Follow(t, d)
	if n := feedtest.Next(t, feed); n.Err != nil || n.ElectionNumber != 1 {
		t.Errorf("the feed yields %+v", n)
	}
	query.Set("server_name", "localhost")
	feedtest.Read(t, opened(t, at+query.Encode()))

	for name, c := range map[string]struct {
		change url.Values
		words  []string
	}{
		"another name":        {url.Values{"server_name": {"elsewhere.example"}}, []string{"elsewhere.example", "server_name"}},
		"no authority":        {url.Values{"cacert": nil}, []string{"unknown authority", "cacert"}},
		"another's authority": {url.Values{"cacert": {other.Path("ca.pem")}}, []string{"unknown authority", "cacert"}},
		"no certificate":      {url.Values{"cert": nil, "cert_key": nil}, []string{"cert_key"}},
		"another's":           {url.Values{"cert": {other.Path("client.pem")}, "cert_key": {other.Path("client.key")}}, []string{"cert_key"}},
	} {
		q := maps.Clone(query)
		for parameter, value := range c.change {
			if q[parameter] = value; value == nil {
				q.Del(parameter)
			}
		}
		d := opened(t, at+q.Encode())
		says(t, name, d, c.words...)
		saysFeed(t, d, c.words...)

		// The same with a user, whom Open logs in.
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		_, err := open(ctx, "etcds://me:s3cret@"+server.Endpoint+"/web?"+q.Encode())
		cancel()
		feedtest.Passing(t, err, append(c.words, "logging in", `"web"`)...)
	}
	says(t, "no TLS", opened(t, "etcd://"+server.Endpoint+"/web"), "etcds://")
	says(t, "TLS where there is none", opened(t, "etcds://"+stores.Etcd(t).Endpoint+"/web"), "does not speak TLS")
}

// Where nothing listens, and where nothing answers.
func TestNoConnection(t *testing.T) {
	for name, d := range map[string]*etcd.Decider{
		"a client of Open's": opened(t, "etcd://127.0.0.1:1,127.0.0.1:2/k"),
		"a caller's":         etcd.NewDecider(client(t, "127.0.0.1:1"), "k", nil),
	} {
		says(t, name, d, "connection refused", "endpoints")
		saysFeed(t, d, "connection refused", "endpoints")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	_, err := open(ctx, "etcd://me:s3cret@127.0.0.1:1/k")
	feedtest.Passing(t, err, "connection refused", "endpoints", "logging in")

	proxy := stores.Toxiproxy(t, stores.Etcd(t).Endpoint)[0]
	d := opened(t, "etcd://"+proxy.Addr+"/k")
	feedtest.Read(t, d)
	proxy.Hang()
	says(t, "a server that hangs", d, "not answered in time")
	proxy.Heal()
}

// Authority, certificate and key are replaced, and with them the server's: a client that
// was opened before goes on without a restart. Files that cannot be read for a moment
// cost nothing.
func TestRenewedCertificates(t *testing.T) {
	ca, next := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "server", "client")
	server := stores.Etcd(t, "-cert", ca.Path("server.pem"), "-key", ca.Path("server.key"), "-cacert", ca.Path("ca.pem"))
	d := opened(t, "etcds://"+server.Endpoint+"/web?cacert="+ca.Path("ca.pem")+"&cert="+ca.Path("client.pem")+"&cert_key="+ca.Path("client.key"))
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

	// What is wrong with the files is said, where the old ones do not do any more.
	if err := os.WriteFile(ca.Path("ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	says(t, "the server is gone", d, "connection refused")
}
