package redis_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

func TestOpen(t *testing.T) {
	server := stores.Redis(t)
	d, err := open(t.Context(), "redis://"+server.Addr+"/2?key=election:web&channel=c&wait_replicas=0&wait_timeout=100ms&feed_silence=1m&dial_timeout=1s&max_retries=1&cluster=false")
	if err != nil {
		t.Fatal(err)
	}
	feedtest.Write(t, d, 3, nil)
	feedtest.Reads(t, opened(t, "redis://"+server.Addr+"?db=2&key=election:web"), 3)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	feedtest.Permanent(t, feedtest.ReadError(t, d), "was closed")

	cluster := stores.RedisCluster(t, 2)
	d = opened(t, "redis://"+cluster[0].Addr+"?cluster=true&key=election:web&addr="+cluster[1].Addr)
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
		if d := opened(t, address); d.String() != want {
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
	port := stores.FreePort(t)
	stores.Redis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", ca.Path("server.pem"), "--tls-key-file", ca.Path("server.key"),
		"--tls-ca-cert-file", ca.Path("ca.pem"), "--tls-auth-clients", "yes")
	at := fmt.Sprintf("redis://127.0.0.1:%d?key=k", port) // the files imply rediss
	own := "&tls_cert=" + ca.Path("client.pem") + "&tls_key=" + ca.Path("client.key")

	d := opened(t, at+"&tls_ca="+ca.Path("ca.pem")+own)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)
	feedtest.Write(t, d, 1, nil)
	feedtest.Number(t, feed, 1)
	for address, words := range map[string][]string{
		at + own: {"certificate", "TLSConfig"},
		at + "&tls_ca=" + other.Path("ca.pem") + own: {"certificate", "TLSConfig"},
	} {
		d := opened(t, address)
		feedtest.Permanent(t, feedtest.ReadError(t, d), words...)
		feedtest.Permanent(t, feedtest.Next(t, feedtest.Follow(t, d)).Err, words...)
	}
	_, err := opened(t, at+"&tls_ca="+ca.Path("ca.pem")).ReadCurrent(t.Context())
	if err == nil || errors.Is(err, leaderelection.ErrLostRace) {
		t.Errorf("without a certificate of its own: %v", err)
	}
}

// Certificates that are renewed are taken up by the next connection, also those of
// an authority that takes the place of another.
func TestRenewedCertificates(t *testing.T) {
	old, renewed := feedtest.NewAuthority(t, "server", "client"), feedtest.NewAuthority(t, "server", "client")
	dir := t.TempDir()
	install := func(from *feedtest.Authority) {
		for _, name := range []string{"ca.pem", "client.pem", "client.key"} {
			data, err := os.ReadFile(from.Path(name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	port := stores.FreePort(t)
	server := stores.Redis(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", old.Path("server.pem"), "--tls-key-file", old.Path("server.key"),
		"--tls-ca-cert-file", old.Path("ca.pem"), "--tls-auth-clients", "yes")
	install(old)
	d := opened(t, fmt.Sprintf("rediss://127.0.0.1:%d?key=k&tls_ca=%s/ca.pem&tls_cert=%s/client.pem&tls_key=%s/client.key", port, dir, dir, dir))
	token := feedtest.Write(t, d, 1, nil)
	feed := feedtest.Follow(t, d)
	feedtest.Next(t, feed)

	for option, name := range map[string]string{"cert-file": "server.pem", "key-file": "server.key", "ca-cert-file": "ca.pem"} {
		data, err := os.ReadFile(renewed.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(old.Path(name), data, 0o600); err != nil { // what the server was given
			t.Fatal(option, err)
		}
	}
	server.Ask(t, "CONFIG SET tls-cert-file "+old.Path("server.pem")) // it reads them all again
	server.Ask(t, "CLIENT KILL TYPE normal SKIPME yes")
	server.Ask(t, "CLIENT KILL TYPE pubsub")
	feedtest.Next(t, feed) // its end
	_, err := d.ReadCurrent(t.Context())
	for err != nil && !errors.Is(err, leaderelection.ErrPermanent) { // the connections that the pool still had
		_, err = d.ReadCurrent(t.Context())
	}
	feedtest.Permanent(t, err, "certificate")
	install(renewed)
	feedtest.Write(t, d, 2, token)
	if n := feedtest.Next(t, feedtest.Follow(t, d)); n.Err != nil || n.ElectionNumber != 2 {
		t.Errorf("%+v", n)
	}
}
