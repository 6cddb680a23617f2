package zookeeper_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/zookeeper"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// makeNode makes a znode by hand.
func makeNode(t *testing.T, c *zk.Conn, path, data string, flags int32) {
	t.Helper()
	if _, err := c.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

// deleteAll deletes a znode by hand, as zkCli.sh deleteall does.
func deleteAll(t *testing.T, c *zk.Conn, path string) {
	t.Helper()
	names, _, err := c.Children(path)
	for _, name := range names {
		err = errors.Join(err, c.Delete(path+"/"+name, -1))
	}
	if err := errors.Join(err, c.Delete(path, -1)); err != nil {
		t.Fatal(err)
	}
}

// Versions begin again when a znode was deleted and made again. A write by one that was read
// before has lost the race, even if the new znode has just that version.
func TestVersionsOfAnotherLife(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	late := decider(c) // knows only the first life
	token := feedtest.Write(t, late, 1, nil)
	token = feedtest.Write(t, late, 2, token)
	_, first, err := c.Get("/e")
	if err != nil {
		t.Fatal(err)
	}
	deleteAll(t, c, "/e")
	feedtest.Lost(t, feedtest.WriteError(t, late, 3, token))
	again := decider(c)
	now := feedtest.Write(t, again, 10, nil)
	now = feedtest.Write(t, again, 11, now)
	_, second, err := c.Get("/e")
	if err != nil || second.Version != first.Version {
		t.Fatalf("nothing is shown: versions %d and %d, %v", first.Version, second.Version, err)
	}
	feedtest.Lost(t, feedtest.WriteError(t, late, 3, token))
	feedtest.Write(t, again, 12, now)
	feedtest.Reads(t, late, 12)
	feedtest.Write(t, late, 13, feedtest.Read(t, late).Token)
}

// A record that was put there by hand, or has lost its guard, gets one by the next write.
func TestRecordWithoutGuard(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	d := decider(c)
	feedtest.Write(t, d, 7, nil)
	data, _, err := c.Get("/e")
	if err != nil {
		t.Fatal(err)
	}
	deleteAll(t, c, "/e")
	makeNode(t, c, "/e", string(data), 0)
	stale := feedtest.Read(t, d).Token
	feedtest.Write(t, d, 8, stale)
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, stale))
	names, _, err := c.Children("/e")
	if err != nil || len(names) != 1 || !strings.HasPrefix(names[0], "guard-") {
		t.Fatalf("%v, %v", names, err)
	}
	makeNode(t, c, "/e/another", "", 0) // which means nothing
	feedtest.Read(t, d)
	if _, err := c.Set("/e/"+names[0], []byte("written by hand"), -1); err != nil { // nor does this
		t.Fatal(err)
	}
	token := feedtest.Write(t, d, 9, feedtest.Read(t, d).Token)
	if err := c.Delete("/e/"+names[0], -1); err != nil {
		t.Fatal(err)
	}
	feedtest.Lost(t, feedtest.WriteError(t, d, 9, token))
	feedtest.Write(t, d, 9, feedtest.Read(t, d).Token)
	feedtest.Write(t, d, 10, feedtest.Read(t, d).Token)
}

// What is there and no record of ours is reported, and left alone.
func TestForeignZnodes(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	storetest.LeavesAlone(t, feedtest.NoRecords(), func(name string) leaderelection.RaceDecider { return zookeeper.NewDecider(c, "/"+name, nil) },
		func(name, content string) { makeNode(t, c, "/"+name, content, 0) },
		func(name string) string {
			left, _, err := c.Get("/" + name)
			if err != nil {
				t.Fatal(err)
			}
			return string(left)
		})
	makeNode(t, c, "/ephemeral", "", zk.FlagEphemeral)
	feedtest.Permanent(t, feedtest.ReadError(t, zookeeper.NewDecider(c, "/ephemeral", nil)), "/ephemeral", "ephemeral")
	feedtest.Permanent(t, feedtest.WriteError(t, zookeeper.NewDecider(c, "/ephemeral/e", nil), 1, nil), "the parent is an ephemeral znode")
}

func TestParents(t *testing.T) {
	c := client(t, stores.ZooKeeper(t).Addr)
	d := zookeeper.NewDecider(c, "/a/b/c", nil)
	e := feedtest.Read(t, d)
	feedtest.Permanent(t, feedtest.WriteError(t, d, 1, e.Token), "the parent of /a/b/c is missing", "create=true")
	feed := feedtest.Follow(t, d) // watches for the znode's coming
	feedtest.Number(t, feed, 0)
	feedtest.Write(t, zookeeper.NewDecider(c, "/a/b/c", &zookeeper.Options{CreateParents: true}), 1, e.Token)
	feedtest.Number(t, feed, 1)
	deleteAll(t, c, "/a/b/c")
	feedtest.Number(t, feed, 0)
}

// Who may do what, by the ACL that the owner gives.
func TestPermissions(t *testing.T) {
	addr := stores.ZooKeeper(t).Addr
	as := func(who, rest string) *zookeeper.Decider { return zoo.Opened(t, "zookeeper://"+who+addr+rest) }
	owner := as("me:geheim%2F@", "/secret/e?create=true&acl=owner")
	feedtest.Write(t, owner, 2, feedtest.Write(t, owner, 1, nil))
	feedtest.Number(t, feedtest.Follow(t, as("me:geheim%2F@", "/secret/e")), 2)
	for _, who := range []string{"", "me:wr0ng@", "you:geheim%2F@"} {
		stranger := as(who, "/secret/e")
		feedtest.Denied(t, feedtest.ReadError(t, stranger), "/secret/e", "permissions", "credentials")
		_, err := stranger.WriteEntry(t.Context(), feedtest.State(3, nil))
		feedtest.Denied(t, err, "permissions")
		if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("a password is in the error: %v", err)
		}
	}
	shown := as("me:geheim%2F@", "/shown?acl=owner-write")
	feedtest.Write(t, shown, 1, nil)
	observer := as("", "/shown")
	e := feedtest.Read(t, observer)
	if e.ElectionNumber != 1 {
		t.Errorf("%+v", e)
	}
	feedtest.Number(t, feedtest.Follow(t, observer), 1)
	feedtest.Denied(t, feedtest.WriteError(t, observer, 2, e.Token), "permissions")
	feedtest.Permanent(t, feedtest.WriteError(t, zookeeper.NewDecider(client(t, addr), "/x", &zookeeper.Options{ACL: zk.AuthACL(zk.PermAll)}), 1, nil), "credentials")
	owner.Close()
	feedtest.Refuses(t, owner, "closed", "keep it open")
}

// TLS that checks the server's certificate, with one of the client's own, through what a
// server with a secure port does itself.
func TestTLS(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	a, other := feedtest.NewAuthority(t, "server", "candidate"), feedtest.NewAuthority(t, "candidate")
	addr, _ := serveTLS(t, a)
	at := func(host string, ca *feedtest.Authority) *zookeeper.Decider {
		return zoo.Opened(t, "zookeeper://"+strings.Replace(addr, "127.0.0.1", host, 1)+"/e?"+storetest.TLS(ca, "candidate"))
	}
	feedtest.Write(t, at("127.0.0.1", a), 1, nil)
	feedtest.Read(t, at("localhost", a))
	feedtest.Refuses(t, at("127.0.0.1", other), "certificate", "tls_ca")
}

func TestRenewedCertificates(t *testing.T) {
	stores.Nightly(t, "it waits for the server or the client to give up")
	a := feedtest.NewAuthority(t, "server", "candidate")
	addr, breaks := serveTLS(t, a)
	storetest.Renewed(t, zoo.Opened(t, "zookeeper://"+addr+"/e?"+storetest.TLS(a, "candidate")), a, breaks)
}

// serveTLS serves with TLS what a new server does, to those who have a certificate. Breaks ends
// all connections.
func serveTLS(t *testing.T, a *feedtest.Authority) (at string, breaks func()) {
	t.Helper()
	relay := stores.NewRelay(t, stores.ZooKeeper(t).Addr)
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.ServerTLS("server"))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				to, err := net.Dial("tcp", relay.Addr)
				if err != nil {
					return
				}
				defer to.Close()
				serving.Go(func() { _, _ = io.Copy(c, to); _ = c.Close() })
				_, _ = io.Copy(to, c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); relay.Refuse(); serving.Wait() })
	return l.Addr().String(), func() { relay.Refuse(); relay.Heal() }
}

func TestBadInputs(t *testing.T) {
	c := client(t, "127.0.0.1:1") // nobody is asked
	for _, path := range []string{"", "/", "e", "/e/", "//e", "/a//b", "/./e", "/a/..", "/a\x00", "/a\x1f", "/\ufff0", "/\xff", "/zookeeper/config", "/" + strings.Repeat("e", 1000)} {
		feedtest.Refuses(t, zookeeper.NewDecider(c, path, nil), "znode")
	}
	feedtest.Permanent(t, feedtest.ReadError(t, decider(nil)), "the connection is nil")
	// A bare number counts nanoseconds: nobody means so few.
	feedtest.Refuses(t, zookeeper.NewDecider(nil, "/one", &zookeeper.Options{FeedSilence: 10}), "nanoseconds")
	_, err := zookeeper.Connect([]string{"127.0.0.1:1"}, &zookeeper.ConnectOptions{SessionTimeout: 10})
	feedtest.Says(t, err, "nanoseconds")
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, zookeeper.Open, map[string]string{
		"zk://localhost/e":                         "scheme",
		"zookeeper:/e":                             "name a host",
		"zookeeper:///e":                           "name a host",
		"zookeeper://a,,b/e":                       "has no name",
		"zookeeper://a":                            "path",
		"zookeeper://a/":                           "path",
		"zookeeper://a/e/":                         "/ at its end",
		"zookeeper://me@a/e":                       "user:password@",
		"zookeeper://a/e?acl=owner":                "needs credentials",
		"zookeeper://a/e?acl=mine":                 `"acl"`,
		"zookeeper://a/e?create=perhaps":           `"create"`,
		"zookeeper://a/e?session_timeout=5":        `"session_timeout"`,
		"zookeeper://a/e?feed_silence=-1s":         `"feed_silence"`,
		"zookeeper://a/e?tls=0&tls_ca=/x":          "leave out tls=0",
		"zookeeper://a/e?tls_ca=/no/file":          "/no/file",
		"zookeeper://a/e?tls=true&tls_ca=/no/file": "/no/file",
		"zookeeper://a/e?election=x":               `no parameter "election"`,
	})
}

func TestNoServer(t *testing.T) {
	begun := time.Now()
	feedtest.Passing(t, feedtest.ReadError(t, zoo.Opened(t, "zookeeper://127.0.0.1:1,127.0.0.1:2/e")), "no server answers", "connection refused")
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}

// The number of servers is warned of if it is one, or even.
func TestDurability(t *testing.T) {
	stores.Nightly(t, "it starts a cluster")
	feedtest.Examines(t, decider(client(t, stores.ZooKeeper(t).Addr)), "one server that votes")
	servers := stores.ZooKeeperCluster(t, 3)
	feedtest.Examines(t, decider(client(t, servers[0].Addr)))
	const lines = "server.1=a:1:2:participant\nserver.2=a:1:2:participant;2181\nserver.3=a:1:2:observer\nversion=0"
	for config, words := range map[string][]string{lines: {"2 servers that vote", "1 or 3"}, lines + "\nserver.4=a:1:2": nil} {
		feedtest.Examines(t, decider(&lying{Conn: client(t, servers[0].Addr), get: func(_ []byte, s *zk.Stat, err error) ([]byte, *zk.Stat, error) {
			return []byte(config), s, err
		}}), words...)
	}
}

// The same names on other servers are another election: String says where it is, and as whom nobody.
func TestPlace(t *testing.T) {
	const want = "znode /e at a:1,b:2"
	if d := zoo.Opened(t, "zookeeper://me:s3cret@a:1,b:2/e"); d.String() != want {
		t.Errorf("%s, want %s", d, want)
	}
}
