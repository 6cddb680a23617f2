package store_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/test/suite/feedtest"
)

// taken is what a store might take of its URL.
type taken struct {
	name     string
	names    []string
	mode     string
	create   bool
	replicas int
	grace    time.Duration
	endpoint string
	driver   string
}

func take(t *testing.T, raw string) (taken, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return taken{}, err
	}
	got := taken{
		driver: p.Take("the driver's", func(name string) bool { return strings.HasPrefix(name, "driver") }).Encode(),
		name:   p.String("name"), names: p.Strings("server"), mode: p.OneOf("mode", "json", "xml"), create: p.Bool("create"),
		replicas: p.Int("replicas", 1, 5), grace: p.Duration("grace"),
	}
	if e := p.Endpoint("endpoint"); e != nil {
		got.endpoint = e.String()
	}
	return got, p.Rest()
}

func TestParams(t *testing.T) {
	got, err := take(t, "x://h/k?name=n&server=a&server=b&mode=xml&create=true&replicas=3&grace=2s&endpoint=http://h:1/&driverTLS=1&driver=2")
	want := taken{"n", []string{"a", "b"}, "xml", true, 3, 2 * time.Second, "http://h:1/", "driver=2&driverTLS=1"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := take(t, "x://h/k"); err != nil || !reflect.DeepEqual(got, taken{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// What is wrong with a URL is said, by the parameter's name.
func TestWrongParams(t *testing.T) {
	for raw, want := range map[string]string{
		"x://h/k#1":                    "%23",
		"x://h/k?a=%zz":                "invalid URL escape",
		"x://h/k?nmae=n":               `no parameter "nmae"; there are create, endpoint, grace, mode, name, replicas, server and the driver's`,
		"x://h/k?name=a&name=b":        `"name" is given 2 times`,
		"x://h/k?name=":                `"name" has no value`,
		"x://h/k?mode=yaml":            `"mode" is "yaml"; want json or xml`,
		"x://h/k?create=maybe":         `"create" is "maybe"; want true or false`,
		"x://h/k?replicas=6":           `"replicas" is "6"; want a number from 1 to 5`,
		"x://h/k?grace=-1s":            `"grace" is "-1s"; want a duration`,
		"x://h/k?endpoint=h:1":         `"endpoint" is "h:1"; want a URL`,
		"x://h/k?endpoint=http://u@h/": `credentials do not belong in the parameter "endpoint"`,
		"x://h/k?grace=x&create=x":     `"create" is "x"`, // the first that was asked for
	} {
		if _, err := take(t, raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", raw, err, want)
		}
	}
}

// Why a URL cannot be opened is said without its secrets.
func TestOpenErrors(t *testing.T) {
	u, err := url.Parse("x://user:geheim@h/k?token=heimlich")
	if err != nil {
		t.Fatal(err)
	}
	why := store.Wrong("geheim and heimlich")
	for permanent, err := range map[bool]error{true: store.OpenError("fake", u, why), false: store.NotOpened("fake", u, errBusy)} {
		wants(t, err, permanent, "leaderelection/fake: opening x://")
		if strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "heimlich") {
			t.Error(err)
		}
	}
	if n := strings.Count(store.OpenError("fake", u, why).Error(), "no retry can help"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestHosts(t *testing.T) {
	for host, want := range map[string]string{
		"a":            "a:1",
		"a:":           "a:1",
		"a:2,b":        "a:2 b:1",
		"[::1],[::2]:": "[::1]:1 [::2]:1",
		"a,,b":         "",
		":1":           "",
	} {
		got, err := store.Hosts(&url.URL{Host: host}, "1")
		if strings.Join(got, " ") != want || (err == nil) != (want != "") {
			t.Errorf("the hosts of %q are %q (%v), want %q", host, got, err, want)
		}
	}
}

// A place names servers, and nothing of who connects to them.
func TestAt(t *testing.T) {
	for servers, want := range map[string]string{
		"":                             "",
		"a:1":                          " at a:1",
		"a:1,b:2":                      " at a:1,b:2",
		"http://a:1,https://b":         " at a:1,b",
		"nats://u:p@a:1,nats://t@b:2,": " at a:1,b:2",
		"u:p@x@a:1":                    " at a:1",
		"https://a/k8s/c":              " at a/k8s/c",
	} {
		if got := store.At(servers); got != want {
			t.Errorf("%s: %q, want %q", servers, got, want)
		}
	}
}

// files are those that a URL with these parameters names.
func files(t *testing.T, ca, cert, key string) store.TLSFiles {
	t.Helper()
	q := url.Values{}
	for name, v := range map[string]string{"tls_ca": ca, "tls_cert": cert, "tls_key": key} {
		if v != "" {
			q.Set(name, v)
		}
	}
	p, err := store.ParseParams(&url.URL{RawQuery: q.Encode()})
	if err != nil {
		t.Fatal(err)
	}
	f := p.TLSFiles()
	if err := p.Rest(); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTLSFiles(t *testing.T) {
	a := feedtest.NewAuthority(t, "client", "other")
	if cfg, err := files(t, a.Path("ca.pem"), a.Path("client.pem"), a.Path("client.key")).Load(); err != nil || cfg.RootCAs == nil || len(cfg.Certificates) != 1 {
		t.Errorf("%+v, %v", cfg, err)
	}
	none := files(t, "", "", "")
	if cfg, err := none.Load(); err != nil || cfg.RootCAs != nil || len(cfg.Certificates) != 0 || !none.None() {
		t.Errorf("of no files: %+v, %v", cfg, err)
	}
	for want, f := range map[string]store.TLSFiles{
		"tls_ca: open /no/such/file":     files(t, "/no/such/file", "", ""),
		"no PEM certificate":             files(t, os.DevNull, "", ""),
		"tls_cert and tls_key go toget":  files(t, "", a.Path("client.pem"), ""),
		"tls_cert and tls_key go togeth": files(t, "", "", a.Path("client.key")),
		"tls_cert and tls_key: tls: pri": files(t, "", a.Path("client.pem"), a.Path("other.key")),
	} {
		if _, err := f.Load(); err == nil || !strings.Contains(err.Error(), want) || f.None() {
			t.Errorf("%+v: %v; want %q", f, err, want)
		}
	}
}

// A file implies TLS, and contradicts tls=false.
func TestTLSParameters(t *testing.T) {
	a := feedtest.NewAuthority(t)
	ca := "&tls_ca=" + url.QueryEscape(a.Path("ca.pem"))
	for query, want := range map[string]struct {
		on   bool
		says string
	}{
		"":                {},
		"tls=false":       {},
		"tls=true":        {on: true},
		ca:                {on: true},
		"tls=true" + ca:   {on: true},
		"tls=false" + ca:  {on: true, says: "leave out tls=false"},
		"tls=maybe" + ca:  {on: true, says: "true or false"},
		"tls_ca=/no/file": {on: true, says: "/no/file"},
		"tls_cert=/a":     {on: true, says: "go together"},
	} {
		p, err := store.ParseParams(&url.URL{RawQuery: query})
		if err != nil {
			t.Fatal(err)
		}
		on, files := p.TLS()
		err = p.Rest()
		if on != want.on || on == files.None() && query != "tls=true" || (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, %+v, %v; want %+v", query, on, files, err, want)
		}
	}
}

// An error names what was reached: the dial, or the handshake with what says nothing.
func TestDialTLSNamesThePhase(t *testing.T) {
	if testing.Short() {
		t.Skip("nightly: it goes by the wall clock")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"TLS handshake with " + l.Addr().String(), "dial tcp"} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := store.TLSFiles{}.Dial(ctx, nil, "tcp", l.Addr().String())
		cancel()
		if err == nil || !strings.Contains(err.Error(), phase) {
			t.Errorf("%v, want it to say %s", err, phase)
		}
		_ = l.Close()
	}
}

// It is made again once for each distrust, and stays as it was while the files cannot be read.
func TestRenewed(t *testing.T) {
	made, unread := 1, error(nil)
	r := store.NewRenewed(made, func(context.Context) (int, error) {
		if unread == nil {
			made++
		}
		return made, unread
	})
	get := func(what string, want int) {
		t.Helper()
		if got := r.Get(t.Context()); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	get("at first", 1)
	r.Distrust()
	r.Distrust()
	get("distrusted", 2)
	get("trusted again", 2)
	unread = errors.New("no such file")
	r.Distrust()
	get("unreadable", 2)
	unread = nil
	get("readable again", 3)
	get("trusted again", 3)
}
