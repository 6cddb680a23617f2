package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
	"github.com/c8e606e4/leaderelection/internal/test/suite/storetest"
)

// What is at the key and no record of ours is reported, and left alone.
func TestForeignValueIsLeftAlone(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	for name, put := range map[string][]any{
		"string":            {"SET", "", "hello"},
		"list":              {"RPUSH", "", "a", "b"},
		"another hash":      {"HSET", "", "leader", "a"},
		"no version":        {"HSET", "", "record", `{"leaderelection":1}`},
		"no record":         {"HSET", "", "version", "17-x-1"},
		"an empty version":  {"HSET", "", "version", "", "record", ""},
		"truncated record":  {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":1,"leader_id":"a"`},
		"hand-edited":       {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":1,"leader_id":7}`},
		"of a newer format": {"HSET", "", "version", "17-x-1", "record", `{"leaderelection":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			key := feedtest.Unique()
			put[1] = key
			if err := c.Do(t.Context(), put...).Err(); err != nil {
				t.Fatal(err)
			}
			before := c.Dump(t.Context(), key).Val()
			feedtest.Foreign(t, redis.NewDecider(c, key, nil), key)
			if after := c.Dump(t.Context(), key).Val(); after == "" || after != before {
				t.Error("the value was changed")
			}
		})
	}
}

func TestClosedClient(t *testing.T) {
	c := client(t, stores.Redis(t).Addr)
	d := redis.NewDecider(c, "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	if err := d.Close(); err != nil { // the client is the caller's
		t.Fatal(err)
	}
	token = feedtest.Write(t, d, 2, token)
	_ = c.Close()
	feedtest.Permanent(t, feedtest.WriteError(t, d, 3, token), "was closed")
	feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, "was closed")
}

// Passwords, and the least permissions that the documentation names.
func TestAccess(t *testing.T) {
	server := stores.Redis(t)
	server.Ask(t, "ACL SETUSER candidate on >secret ~k &leaderelection:k +eval +hmget +exists +subscribe +ping +time +hset +persist +publish")
	server.Ask(t, "ACL SETUSER observer on >secret ~k &leaderelection:k +eval +hmget +exists +subscribe +ping")
	server.Ask(t, "ACL SETUSER default -@all +ping >password")

	as := func(user string) *redis.Decider {
		return rd.Opened(t, fmt.Sprintf("redis://%s@%s?key=k", user, server.Addr))
	}
	candidate, observer := as("candidate:secret"), as("observer:secret")
	feed := feedtest.Follow(t, observer)
	feedtest.Number(t, feed, 0)
	token := feedtest.Write(t, candidate, 1, nil)
	feedtest.Number(t, feed, 1)
	feedtest.Reads(t, observer, 1)
	_, err := observer.WriteEntry(t.Context(), feedtest.State(2, token))
	feedtest.Denied(t, err, `"k"`, "ACL")

	for user, word := range map[string]string{
		"candidate:wrong":  "does not know this user and password",
		"nobody:secret":    "does not know this user and password",
		"default:password": "ACL lacks",
	} {
		d := as(user)
		for _, err := range feedtest.Errors(t, d) {
			feedtest.Denied(t, err, `"k"`, word)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password\"")) {
			t.Errorf("a password is in the error: %v", err)
		}
	}
	feedtest.Denied(t, feedtest.ReadError(t, redis.NewDecider(client(t, server.Addr), "k", nil)), `"k"`, "NOAUTH")
	feedtest.Denied(t, feedtest.ReadError(t, rd.Opened(t, fmt.Sprintf("redis://candidate:secret@%s?key=other", server.Addr))), `"other"`, "ACL")

	t.Setenv("REDISCLI_AUTH", "secret")
	feedtest.Reads(t, as("observer"), 1)
}

// A client that is not made for what the server is.
func TestWrongServer(t *testing.T) {
	nodes := stores.RedisCluster(t, 2)
	var moved error
	for _, n := range nodes {
		if _, err := redis.NewDecider(client(t, n.Addr), "k", nil).ReadCurrent(t.Context()); err != nil {
			moved = err
		}
	}
	feedtest.Permanent(t, moved, `"k"`, "this is a Cluster")

	c := goredis.NewClient(&goredis.Options{Addr: nodes[0].Addr, DB: 3, MaxRetries: -1})
	defer c.Close()
	feedtest.Permanent(t, feedtest.ReadError(t, redis.NewDecider(c, "k", nil)), "a Cluster has database 0 only")

	master := stores.Redis(t)
	replica := stores.RedisReplica(t, master)
	d := redis.NewDecider(client(t, replica.Addr), "k", nil)
	if e := feedtest.Read(t, d); !e.Vacant() {
		t.Errorf("%+v", e)
	}
	_, err := d.WriteEntry(t.Context(), feedtest.State(1, nil))
	feedtest.Passing(t, err, "this is a replica") // it may be promoted

	old := goredis.NewClient(&goredis.Options{Addr: master.Addr, DB: 99, MaxRetries: -1})
	defer old.Close()
	feedtest.Permanent(t, feedtest.ReadError(t, redis.NewDecider(old, "k", nil)), "choose another database")
}

// What the server says while it cannot write may pass.
func TestServerThatCannotWrite(t *testing.T) {
	server := stores.Redis(t)
	d := redis.NewDecider(client(t, server.Addr), "k", nil)
	token := feedtest.Write(t, d, 1, nil)
	for name, c := range map[string]struct{ set, unset string }{
		"out of memory":   {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		"too few replica": {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"},
	} {
		server.Ask(t, c.set)
		_, err := d.WriteEntry(t.Context(), feedtest.State(9, token))
		t.Logf("%s: %v", name, err)
		feedtest.Passing(t, err, `"k"`)
		feedtest.Reads(t, d, 1)
		server.Ask(t, c.unset)
	}
	feedtest.Write(t, d, 2, token)
}

func TestBadInputs(t *testing.T) {
	c := client(t, "127.0.0.1:1") // nobody is asked
	feedtest.Refuses(t, redis.NewDecider(nil, "k", nil), "the client is nil")
	feedtest.Refuses(t, redis.NewDecider(c, "", nil), "the key is empty")
	// A bare number counts nanoseconds: nobody means so few.
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{FeedSilence: 10}), "nanoseconds")
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{WaitTimeout: 10}), "nanoseconds")
	feedtest.Refuses(t, redis.NewDecider(c, "one", &redis.Options{FeedSilence: -1}), "negative")
}

func TestOpen(t *testing.T) {
	server := stores.Redis(t)
	d, err := feedtest.Open(t.Context(), redis.Open, "redis://"+server.Addr+"/2?key=election:web&channel=c&wait_replicas=0&wait_timeout=100ms&feed_silence=1m&dial_timeout=1s&max_retries=1&cluster=false")
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Write(t, d, 3, nil)
	feedtest.Reads(t, rd.Opened(t, "redis://"+server.Addr+"?db=2&key=election:web"), 3)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "was closed")

	cluster := stores.RedisCluster(t, 2)
	d = rd.Opened(t, "redis://"+cluster[0].Addr+"?cluster=true&key=election:web&addr="+cluster[1].Addr)
	feedtest.Write(t, d, 4, nil)
}

// A key of the same name on another server, or in another database of it, is another election: String
// says where it is.
func TestPlace(t *testing.T) {
	for address, want := range map[string]string{
		"redis://:secret@r:1/2?key=k":                        `redis key "k" at r:1, database 2`,
		"redis+unix:///run/redis.sock?key=k":                 `redis key "k" at /run/redis.sock, database 0`,
		"redis://a:1?cluster=true&key=k&addr=b:2":            `redis key "k" at a:1,b:2`,
		"redis://s:26379/3?key=k&master_name=m&addr=t:26379": `redis key "k" at the master that Sentinels know, database 3`,
	} {
		if d := rd.Opened(t, address); d.String() != want {
			t.Errorf("%s is %s, want %s", address, d, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	feedtest.OpenRefuses(t, redis.Open, map[string]string{
		"redis://localhost":                  "?key=",
		"redis://localhost?key=":             "?key=",
		"redis://localhost?key=k&colour=red": "colour",
		"rediss://localhost?key=k&tls_ca=" + empty + "&skip_verify=true":        "leave out skip_verify",
		"redis://localhost?key=k&key=l":                                         `"key" is given 2 times`,
		"redis://localhost?key=k&wait_replicas=-1":                              `"wait_replicas" is "-1"`,
		"redis://localhost?key=k&wait_replicas=many":                            `"many"`,
		"redis://localhost?key=k&wait_timeout=5":                                `"5"`,
		"redis://localhost?key=k&feed_silence=-1s":                              `"feed_silence" is "-1s"`,
		"redis://localhost?key=k&cluster=perhaps":                               `"perhaps"`,
		"redis://localhost/zero?key=k":                                          "zero",
		"redis:other:6379/0?key=k":                                              "names no server",
		"rediss:other?key=k":                                                    "names no server",
		"redis:///0?key=k":                                                      "names no server",
		"redis://:6379/0?key=k":                                                 "names no server",
		"http://localhost?key=k":                                                "scheme",
		"redis://localhost?key=k&tls_ca=" + none:                                "no such file",
		"redis+unix:///run/redis.sock?key=k&tls_ca=" + none:                     "socket",
		"unix:///run/redis.sock?key=k":                                          "redis+unix",
		"rediss://localhost?key=k&tls_ca=" + none:                               "no such file",
		"rediss://localhost?key=k&tls_ca=" + empty:                              "no PEM certificate",
		"rediss://localhost?key=k&tls_cert=" + none:                             "go together",
		"rediss://localhost?key=k&tls_cert=a&tls_key=b":                         "tls_cert and tls_key: ",
		"redis://localhost?key=k;colour=red":                                    "semicolon",
		"redis://u:s3cret@localhost?cluster=true&key=k&addr=nowhere":            "nowhere",
		"redis://u:s3cret@localhost?master_name=m&password=s3cret&key=k&addr=a": "addr",
	})
}

// TLS both ways: the server shows a certificate, and demands one.
func TestTLS(t *testing.T) {
	ca, other := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t)
	_, at := secured(t, ca)
	own := "&tls_cert=" + ca.Path("client.pem") + "&tls_key=" + ca.Path("client.key")

	d := rd.Opened(t, at+storetest.TLS(ca, "client"))
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	feedtest.Write(t, d, 1, nil)
	feedtest.Number(t, feed, 1)
	for address, words := range map[string][]string{
		at + own:                            {"certificate", "TLSConfig"},
		at + storetest.TLS(other, "") + own: {"certificate", "TLSConfig"},
	} {
		d := rd.Opened(t, address)
		feedtest.Permanent(t, feedtest.ReadError(t, d), words...)
		feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, words...)
	}
	_, err := rd.Opened(t, at+storetest.TLS(ca, "")).ReadCurrent(t.Context())
	if err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("without a certificate of its own: %v", err)
	}
}

func TestRenewedCertificates(t *testing.T) {
	a := feedtest.NewAuthority(t, "server", "client")
	server, at := secured(t, a)
	d := rd.Opened(t, at+storetest.TLS(a, "client"))
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	storetest.Renewed(t, d, a, func() {
		server.Ask(t, "CONFIG SET tls-cert-file "+a.Path("server.pem")) // it reads them all again
		server.Ask(t, "CLIENT KILL TYPE normal SKIPME yes")
		server.Ask(t, "CLIENT KILL TYPE pubsub")
		for n := range feed { // its end
			if n.Err != nil {
				break
			}
		}
	})
}

// secured starts a server with TLS, which demands a certificate.
func secured(t *testing.T, a *feedtest.Authority) (server *stores.RedisServer, at string) {
	t.Helper()
	port := stores.FreePort(t)
	server = stores.Redis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", a.Path("server.pem"), "--tls-key-file", a.Path("server.key"),
		"--tls-ca-cert-file", a.Path("ca.pem"), "--tls-auth-clients", "yes")
	return server, fmt.Sprintf("redis://127.0.0.1:%d?key=k&", port) // the files imply rediss
}

// documented are the words of the ACL command in the package's documentation, with
// another key in place of the example's.
func documented(t testing.TB) []string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "ACL SETUSER candidate ")
	command, _, ended := strings.Cut(rest, "\n//\n")
	if !found || !ended {
		t.Fatal("doc.go has no ACL command")
	}
	return strings.Fields(strings.NewReplacer(
		"\\\n//", "", "~election:web", "~k", "&leaderelection:election:web", "&leaderelection:k",
	).Replace(command))
}

// grant makes a user of these rights.
func grant(t *testing.T, server *stores.RedisServer, rights []string) {
	t.Helper()
	server.Ask(t, "ACL SETUSER candidate reset "+strings.Join(rights, " "))
}

// work does all that a candidate or an observer does, and returns what is refused.
func work(t *testing.T, server *stores.RedisServer, candidate bool, opts redis.Options) error {
	t.Helper()
	ctx, end := context.WithCancelCause(storetest.Within(t, 20*time.Second))
	defer end(nil)
	admin, c := client(t, server.Addr), goredis.NewClient(&goredis.Options{
		Addr: server.Addr, Username: "candidate", Password: "secret", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	if err := admin.Del(ctx, "k").Err(); err != nil {
		return err
	}
	opts.FeedSilence = 50 * time.Millisecond
	d, writer := redis.NewDecider(c, "k", &opts), redis.NewDecider(admin, "k", nil)
	if candidate {
		writer = redis.NewDecider(c, "k", &opts)
	}
	number := uint64(0)
	for e, err := range d.Changes(ctx) {
		if number++; err != nil || number == 3 {
			return err
		}
		next := feedtest.State(number, e.Token)
		time.AfterFunc(3*opts.FeedSilence, func() { // when it has asked whether the server is there
			if _, err := writer.WriteEntry(ctx, next); err != nil {
				end(err)
			}
		})
	}
	return context.Cause(ctx)
}

// The permissions that the documentation names are enough, and each of them is
// needed.
func TestDocumentedPermissions(t *testing.T) {
	server := stores.Redis(t)
	stores.RedisReplica(t, server)
	server.Ask(t, "CONFIG SET acllog-max-len 0")
	all := documented(t)
	onlyWrites := []string{"+time", "+hset", "+persist", "+publish"} // the last four, says the documentation
	if !slices.Equal(all[len(all)-4:], onlyWrites) {
		t.Errorf("the documentation's last four are %v", all[len(all)-4:])
	}
	for name, c := range map[string]struct {
		rights    []string
		candidate bool
		opts      redis.Options
	}{
		"candidate":              {all, true, redis.Options{}},
		"candidate with replica": {append(slices.Clone(all), "+wait"), true, redis.Options{WaitReplicas: 1, WaitTimeout: 2 * time.Second}},
		"observer":               {all[:len(all)-4], false, redis.Options{}},
	} {
		t.Run(name, func(t *testing.T) {
			grant(t, server, c.rights)
			if err := work(t, server, c.candidate, c.opts); err != nil {
				t.Fatalf("with all that is documented: %v", err)
			}
			for i, word := range c.rights {
				if !strings.HasPrefix(word, "+") {
					continue
				}
				grant(t, server, slices.Delete(slices.Clone(c.rights), i, i+1))
				err := work(t, server, c.candidate, c.opts)
				feedtest.Permanent(t, err)
			}
		})
	}
}

// In a database of another number, and in a Cluster, they need what is documented
// besides.
func TestDocumentedPermissionsElsewhere(t *testing.T) {
	server, nodes := stores.Redis(t), stores.RedisCluster(t, 2)
	for _, c := range []struct {
		servers     []*stores.RedisServer
		more, where string
	}{{[]*stores.RedisServer{server}, "+select", "/3?key=k"}, {nodes, "+cluster", "?key=k&cluster=true"}} {
		for _, more := range []string{"", c.more} {
			for _, s := range c.servers {
				grant(t, s, append(documented(t), more))
			}
			_, err := rd.Opened(t, "redis://candidate:secret@"+c.servers[0].Addr+c.where).WriteEntry(t.Context(), feedtest.State(1, nil))
			if more == "" {
				feedtest.Denied(t, err, `"k"`, "ACL")
			} else if err != nil {
				t.Error(err)
			}
		}
	}
}
