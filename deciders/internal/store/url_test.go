package store_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
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
	labels   map[string]string
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
		replicas: p.Int("replicas", 1, 5), grace: p.Duration("grace"), labels: p.Pairs("label"),
	}
	if e := p.Endpoint("endpoint"); e != nil {
		got.endpoint = e.String()
	}
	return got, p.Rest()
}

func TestParams(t *testing.T) {
	got, err := take(t, "x://h/k?name=n&server=a&server=b&mode=xml&create=true&replicas=3&grace=2s&endpoint=http://h:1/&driverTLS=1&driver=2&label=a=b=c&label=d=")
	want := taken{"n", []string{"a", "b"}, "xml", true, 3, 2 * time.Second, "http://h:1/", "driver=2&driverTLS=1", map[string]string{"a": "b=c", "d": ""}}
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
		"x://h/k?nmae=n":               `no parameter "nmae"; there are create, endpoint, grace, label, mode, name, replicas, server and the driver's`,
		"x://h/k?name=a&name=b":        `"name" is given 2 times`,
		"x://h/k?name=":                `"name" has no value`,
		"x://h/k?mode=yaml":            `"mode" is "yaml"; want json or xml`,
		"x://h/k?label=a":              `"label" is "a"; want key=value`,
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
