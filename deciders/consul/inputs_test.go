package consul

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// What would not arrive at Consul as it is, is refused before it is asked.
func TestBadInputs(t *testing.T) {
	for _, key := range []string{"", "/", "/e", "e/", "a//b", "a/./b", "a/..", "..", " e", "e ", "a%2Fb", "a\nb", "a\x00", "\xff", "a\u202eb", strings.Repeat("e", 1001)} {
		feedtest.Refuses(t, NewDecider(nil, "http://127.0.0.1:1", key, nil), "key")
	}
	for _, address := range []string{"", "127.0.0.1:8500", "localhost", "ftp://host", "http://", "unix:///run/sock", "http://a:b@host", "http://host?token=x", "http://host/#x", "http://[::1"} {
		feedtest.Refuses(t, NewDecider(nil, address, "e", nil), "the agent's address")
	}
	for _, wait := range []time.Duration{-1, 1, time.Second - 1, 10*time.Minute + 1} {
		feedtest.Refuses(t, NewDecider(nil, "http://127.0.0.1:1", "e", &Options{FeedWait: wait}), "FeedWait")
	}
	d := NewDecider(nil, "http://127.0.0.1:1", "e", nil)
	feedtest.Passing(t, feedtest.ReadError(t, d), `Consul key "e"`, "connection refused")
	if d.String() != `Consul key "e" at 127.0.0.1:1` || d.Close() != nil {
		t.Error(d)
	}
	d = NewDecider(nil, "http://127.0.0.1:1", "e", &Options{Datacenter: "d", Namespace: "n", Partition: "p"})
	if d.String() != `Consul key "e" of datacenter d of namespace n of partition p at 127.0.0.1:1` {
		t.Error(d)
	}
}

// opening is what Open makes of an address, with these in its environment.
func opening(address string, env map[string]string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	d, err := open(u, func(name string) string { return env[name] })
	if err != nil {
		return "", err
	}
	defer d.Close()
	token, err := d.b.token()
	o := d.b.opts
	return fmt.Sprintf("%s %s %s dc=%s ns=%s partition=%s %v", d.b.address, d.b.key, token, o.Datacenter, o.Namespace, o.Partition, o.FeedWait), err
}

func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{ // address, token, datacenter, namespace, partition, wait
		"consul://host/e":                                       "http://host:8500 e  dc= ns= partition= 50s",
		"consul://host:/e":                                      "http://host:8500 e  dc= ns= partition= 50s",
		"consul://host:1/a/b%20c?feed_wait=10s":                 "http://host:1 a/b c  dc= ns= partition= 10s",
		"consul://[::1]/e?datacenter=d&namespace=n&partition=p": "http://[::1]:8500 e  dc=d ns=n partition=p 50s",
		"consul://:t%2Fk@host/e?tls=true":                       "https://host:8501 e t/k dc= ns= partition= 50s",
		"consul://host/e?token_file=" + file:                    "http://host:8500 e of-the-file dc= ns= partition= 50s",
	} {
		if got, err := opening(address, nil); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", address, got, err, want)
		}
	}
	const rest = " dc= ns= partition= 50s"
	for want, env := range map[string]map[string]string{
		"http://127.0.0.1:8500 e " + rest:                     {},
		"http://agent:8500 e " + rest:                         {"CONSUL_HTTP_ADDR": "agent"},
		"http://agent:1/ e " + rest:                           {"CONSUL_HTTP_ADDR": "http://agent:1/"},
		"https://agent:8501 e x" + rest:                       {"CONSUL_HTTP_ADDR": "https://agent", "CONSUL_HTTP_TOKEN": "x", "CONSUL_HTTP_TOKEN_FILE": file},
		"http://a:1 e of-the-file" + rest:                     {"CONSUL_HTTP_ADDR": "a:1", "CONSUL_HTTP_TOKEN_FILE": file},
		"http://a:8500/b e " + rest:                           {"CONSUL_HTTP_ADDR": "http://a/b"},
		"the agent's address must be a URL with one host":     {"CONSUL_HTTP_ADDR": "unix:///run/sock"},
		"the agent's address must have no credentials and no": {"CONSUL_HTTP_ADDR": "u:p@a"},
	} {
		got, err := opening("consul:///e", env)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", env, got, want)
		}
	}
	if got, err := opening("consul://:mine@a/e", map[string]string{"CONSUL_HTTP_TOKEN": "x"}); err != nil || !strings.Contains(got, " mine ") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	feedtest.OpenRefuses(t, Open, map[string]string{
		"consuls://localhost/e":                   "scheme",
		"consul:e":                                "no key",
		"consul://a":                              "no key",
		"consul://a/":                             "no key",
		"consul://a//e":                           "between slashes",
		"consul://a/e/":                           "between slashes",
		"consul://a/a%252Fb":                      "letter",
		"consul://a,b/e":                          "one host",
		"consul://me@a/e":                         "without a user",
		"consul://me:s3cret@a/e":                  "without a user",
		"consul://:@a/e":                          "without a user",
		"consul://:s3cret@a/e?token_file=/x":      "token_file",
		"consul://a/e?feed_wait=5":                `"feed_wait"`,
		"consul://a/e?feed_wait=5ms":              "FeedWait",
		"consul://a/e?tls=perhaps":                `"tls"`,
		"consul://a/e?tls=false&tls_ca=/x":        "leave out tls=false",
		"consul://a/e?tls_ca=/no/file":            "/no/file",
		"consul://a/e?tls=true&tls_ca=/no/file":   "/no/file",
		"consul://a/e?tls=true&tls_cert=/no/file": "go together",
		"consul://a/e?election=x":                 `no parameter "election"`,
		"consul://a/e?token=s3cret":               `no parameter "token"`,
		"consul://a/e?datacenter=":                "no value",
		"consul://a/e?datacenter=a&datacenter=b":  "2 times",
		"consul://a/e#x":                          "%23",
	})
}
