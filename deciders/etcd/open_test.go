package etcd_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
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
		d := opened(t, address)
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
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := open(ctx, "etcd://me:s3cret@127.0.0.1:1/k")
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
	candidate, observer := opened(t, at("candidate")), opened(t, at("observer"))
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
	feedtest.Write(t, opened(t, at("")), 2, feedtest.Read(t, candidate).Token)
	t.Setenv("ETCDCTL_USER", "candidate")
	t.Setenv("ETCDCTL_PASSWORD", "pass/candidate")
	feedtest.Write(t, opened(t, at("")), 3, feedtest.Read(t, candidate).Token)
	t.Setenv("ETCDCTL_USER", "")

	_, err = opened(t, at("")).ReadCurrent(ctx)
	feedtest.Denied(t, err, "user")
	if n := feedtest.Next(t, feedtest.Follow(t, opened(t, at("")))); !errors.Is(n.Err, leaderelection.ErrPermanent) {
		t.Errorf("the feed of nobody in particular yields %+v", n)
	}
	nobody := url.URL{Scheme: "etcd", Host: server.Endpoint, Path: "/web", User: url.UserPassword("nobody", "n")}
	_, err = opened(t, nobody.String()).ReadCurrent(ctx)
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
	if d := opened(t, "etcds://a:1,b:2/web"); d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}
