package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/plan"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

func TestScratch(t *testing.T) {
	for url, want := range map[string]string{
		"file:///var/lib/a.json?mode=0660":                    "file:///var/lib/a.json-doctor?mode=0660",
		"file:a.json":                                         "file:a.json-doctor",
		"s3://bucket/a%2Fb?region=x":                          "s3://bucket/a%2Fb-doctor?region=x",
		"azblob://account/c/b?native_lease=30s&companion=c/x": "azblob://account/c/b-doctor",
		"redis://:pw@host/0?key=web":                          "redis://:pw@host/0?key=web-doctor",
		"redis://host/0?key=web&channel=news":                 "redis://host/0?channel=news-doctor&key=web-doctor",
		"postgres://host/db?election=web&sslmode=disable":     "postgres://host/db?election=web-doctor&sslmode=disable",
		"sqlite:app.db?election=web":                          "sqlite:app.db?election=web-doctor",
	} {
		if got, err := store.Scratch(url); err != nil || got != want {
			t.Errorf("Scratch(%s) = %s, %v, want %s", url, got, err, want)
		}
	}
}

// Every form in the help opens a store, or fails at what the form leaves out: its
// scheme is known.
func TestFormsAreKnown(t *testing.T) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, form := range append(append([]string{}, store.Forms...), store.TLS...) {
		// Nothing is reached: what is left to go wrong is the network.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		d, err := store.Open(ctx, form, 50*time.Millisecond)
		cancel()
		if errors.Is(err, store.ErrURL) {
			t.Errorf("%s: %v", form, err)
		}
		if err == nil {
			store.Close(d)
		}
	}
	for _, wrong := range []string{"", "plain", "%zz://", "ftp://host/x"} {
		if _, err := store.Open(t.Context(), wrong, time.Second); !errors.Is(err, store.ErrURL) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := store.Parse("redis://user:hush@host:port:x/"); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a password is told: %v", err)
	}
}

// A store that the command opens is listed wherever a reader, or another part of the command,
// looks for it. Each error names the place.
func TestEveryStoreIsListed(t *testing.T) {
	const root = "../../../../"
	read := func(name string) string {
		text, err := os.ReadFile(root + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	packages := map[string]string{} // by scheme
	for line := range strings.Lines(read("deciders/open/open.go")) {
		if row, is := strings.CutPrefix(line, "//\tdeciders/"); is {
			words := strings.FieldsFunc(row, func(r rune) bool { return strings.ContainsRune(", \n", r) })
			for _, scheme := range words[1:] {
				packages[scheme] = "deciders/" + words[0]
			}
		}
	}
	has := func(place, text, what string) {
		if !strings.Contains(text, what) {
			t.Errorf("%s lacks %s", place, what)
		}
	}
	has("README.md", read("README.md"), fmt.Sprintf("one of %d stores", len(store.Kinds)))
	choosing, building, shards := read("docs/choosing.md"), read("docs/building.md"), read("cmd/leaderelect/docs/shards.md")
	for _, k := range store.Kinds {
		name := k.Schemes[0]
		for _, scheme := range k.Schemes {
			if packages[scheme] == "" {
				t.Errorf("the list of schemes in deciders/open/open.go lacks %s", scheme)
			} else {
				has("the table of stores in docs/choosing.md", choosing, "`"+packages[scheme]+"` |")
			}
			delete(packages, scheme)
			if !strings.HasPrefix(redact.URL(scheme+":x"), scheme+":") {
				t.Errorf("known in internal/log/redact/redact.go lacks %s", scheme)
			}
		}
		if k.Tag != "" {
			has("the list of build tags in docs/building.md", building, "`"+k.Tag+"`")
		}
		if !regexp.MustCompile(`(?m)^\| [a-z0-9, ]*\b` + name + `\b[a-z0-9, ]* \|`).MatchString(shards) {
			t.Errorf("the table of stores in cmd/leaderelect/docs/shards.md lacks %s", name)
		}
		if plan.Lookup(name) == nil {
			t.Errorf("Stores in cmd/leaderelect/internal/plan/plan.go lacks %s", name)
		}
		if !slices.ContainsFunc(places, func(p string) bool { return strings.HasPrefix(p, name+"://") }) {
			t.Errorf("places in store_test.go lacks %s", name)
		}
	}
	for scheme := range packages {
		t.Errorf("deciders/open/open.go lists %s, which store.go lacks", scheme)
	}
	for _, s := range plan.Stores {
		if store.Kind(s.Name) != s.Name || !slices.Contains(store.Schemes(), s.Name) {
			t.Errorf("plan.Stores has %s, which is no store's name in store.go", s.Name)
		}
	}
}

// What an operator's command opens is what is there.
func TestExisting(t *testing.T) {
	for from, want := range map[string]string{
		"postgres://u@h/d?election=a&create=true":              "postgres://u@h/d?election=a",
		"sqlite:///x?create=true":                              "sqlite:///x",
		"nats://h/b/k?create=true&replicas=3&storage=memory&x": "nats://h/b/k?x",
		"azblob://a/c/b?native_lease=true&create_companions=1": "azblob://a/c/b?native_lease=true",
		"redis://h/0?key=create=true":                          "redis://h/0?key=create=true",
		"file:///create=true":                                  "file:///create=true",
		"mysql://h/d?election=a&cr%65ate=true":                 "mysql://h/d?election=a",
	} {
		if got := store.Existing(from); got != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
}

// Every store that connects does so by an IPv6 address: with a port, and by its own one if the URL has
// none. What listens there says nothing.
func TestIPv6(t *testing.T) {
	withKeys(t)
	endpoint := func(at string) string { return url.QueryEscape("http://" + at) }
	for name, c := range map[string]struct {
		port string // empty: the URL names an endpoint, whose port is HTTP's
		url  func(at string) string
	}{
		"redis":          {"6379", func(at string) string { return "redis://" + at + "/0?key=e" }},
		"redis cluster":  {"6379", func(at string) string { return "redis://" + at + "?key=e&cluster=true" }},
		"redis sentinel": {"6379", func(at string) string { return "redis://" + at + "/0?key=e&master_name=main" }},
		"rediss":         {"6379", func(at string) string { return "rediss://" + at + "/0?key=e" }},
		"postgres":       {"5432", func(at string) string { return "postgres://u@" + at + "/db?election=e&sslmode=disable" }},
		"mysql":          {"3306", func(at string) string { return "mysql://u@" + at + "/db?election=e" }},
		"etcd":           {"2379", func(at string) string { return "etcd://" + at + "/e" }},
		"etcds":          {"2379", func(at string) string { return "etcds://" + at + "/e" }},
		"nats":           {"4222", func(at string) string { return "nats://" + at + "/bucket/key" }},
		"consul":         {"8500", func(at string) string { return "consul://" + at + "/e" }},
		"consul tls":     {"8501", func(at string) string { return "consul://" + at + "/e?tls=true" }},
		"zookeeper":      {"2181", func(at string) string { return "zookeeper://" + at + "/e" }},
		"zookeeper tls":  {"2181", func(at string) string { return "zookeeper://" + at + "/e?tls=true" }},
		"mongodb":        {"27017", func(at string) string { return "mongodb://" + at + "/db/collection/e" }},
		"rethinkdb":      {"28015", func(at string) string { return "rethinkdb://" + at + "/db/table/e" }},
		"rethinkdb tls":  {"28015", func(at string) string { return "rethinkdb://" + at + "/db/table/e?tls=true" }},
		"s3":             {"", func(at string) string { return "s3://bucket/e?region=x&path_style=true&endpoint=" + endpoint(at) }},
		"dynamodb":       {"", func(at string) string { return "dynamodb://table/e?region=x&endpoint=" + endpoint(at) }},
		"gs":             {"", func(at string) string { return "gs://bucket/e?anonymous=true&endpoint=" + endpoint(at) }},
		"azblob":         {"", func(at string) string { return "azblob://account/container/e?endpoint=" + endpoint(at+"/account") }},
		"kubernetes":     {"", func(at string) string { return "kubernetes://namespace/e?kubeconfig=" + kubeconfig(t, at) }},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "[::1]:0")
			if err != nil {
				t.Skip("this machine has no IPv6:", err)
			}
			connects(t, l, c.url(l.Addr().String()))
			if c.port == "" {
				return
			}
			if l, err = net.Listen("tcp", "[::1]:"+c.port); err != nil {
				t.Skip("a server has the store's own port:", err)
			}
			connects(t, l, c.url("[::1]"))
		})
	}
}

// withKeys gives the stores' clients what they would look for on the network, and keeps them quiet.
func withKeys(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AZURE_STORAGE_KEY": "a2V5",
	} {
		t.Setenv(name, value)
	}
	store.LogDrivers(slog.New(slog.DiscardHandler))
}

// kubeconfig is a file that leads to an API server.
func kubeconfig(t *testing.T, at string) string {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://%s"}}],
		contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: x}}]}`, at)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// connects opens and reads the record of a URL until somebody connects to l.
func connects(t *testing.T, l net.Listener, raw string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	came := make(chan bool)
	go func() {
		defer close(came)
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
			cancel()
			came <- true
		}
	}()
	d, err := store.ByItself(ctx, raw)
	if err == nil {
		_, err = d.ReadCurrent(ctx)
		store.Close(d)
	}
	_ = l.Close()
	if !<-came {
		t.Errorf("%s does not connect: %v", raw, err)
	}
}

// long is longer than any name may be.
var long = strings.Repeat("x", 3000)

// bad are the URLs of each kind of store that are wrong in a way of its own.
var bad = map[string][]string{
	"file":       {"file://", "file://host/e.json", "file:///dir/", "file://user@/e.json", "file:///e.json?mode=9"},
	"gs":         {"gs:/bad", "gs://", "gs://bucket", "gs://bucket/", "gs://B/e", "gs://b/e", "gs://bucket/" + long, "gs://user@bucket/e", "gs://bucket/e?endpoint=x"},
	"s3":         {"s3:/bad", "s3:bad", "s3://", "s3://bucket", "s3://bucket/", "s3://bucket/" + long, "s3://user@bucket/e", "s3://bucket/e?endpoint=x", "s3:///e?bucket=x", "s3://b/e?bucket=arn:aws:s3:x:1:y"},
	"azblob":     {"azblob:/bad", "azblob://", "azblob://account", "azblob://account/container", "azblob://account/container/", "azblob://account/C/e", "azblob://a.b/container/e", "azblob://account/container/" + long, "azblob://account/container/e?native_lease=1s"},
	"dynamodb":   {"dynamodb:/bad", "dynamodb://", "dynamodb://table", "dynamodb://table/", "dynamodb://t/e", "dynamodb://table/" + long, "dynamodb://table/e?sort_value=x", "dynamodb://table/e?partition_key=x&sort_key=x"},
	"nats":       {"nats:/bad", "nats://", "nats://host", "nats://host/bucket", "nats://host/bucket/", "nats://host/bu cket/e", "nats://host/bucket/.e."},
	"etcd":       {"etcd:/bad", "etcd://", "etcd://host", "etcd://host/", "etcd://host,,/e", "etcd://host/e?server_name=x"},
	"redis":      {"redis:/bad", "redis://", "redis://?key=e", "redis://host", "redis://host/x?key=e", "redis://host?key="},
	"postgres":   {"postgres:/bad", "postgres://", "postgres://host", "postgres://host/db", "postgres://host/db?election=" + long, "postgres://host/db?election=e&table=a.b.c", "postgres://host/db?election=e&sslmode=x"},
	"mysql":      {"mysql:/bad", "mysql://", "mysql://host", "mysql://host/db", "mysql://host/db?election=" + long, "mysql://host/db?election=e&table=a.b.c"},
	"sqlite":     {"sqlite:/bad", "sqlite://", "sqlite:///a.db", "sqlite://host/a.db?election=e", "sqlite::memory:?election=e", "sqlite:///a.db?election=" + long, "sqlite:///a.db?election=e&table=a.b.c"},
	"mongodb":    {"mongodb:/bad", "mongodb://", "mongodb://host", "mongodb://host/db", "mongodb://host/db/collection"},
	"rethinkdb":  {"rethinkdb:/bad", "rethinkdb://", "rethinkdb://host", "rethinkdb://host/db", "rethinkdb://host/db/table", "rethinkdb://host/db/table/"},
	"kubernetes": {"kubernetes://", "kubernetes://namespace", "kubernetes://namespace/", "kubernetes://namespace/Bad", "kubernetes://namespace/" + long, "kubernetes://user@namespace/e"},
	"zookeeper":  {"zookeeper:/bad", "zookeeper://", "zookeeper://host", "zookeeper://host/", "zookeeper://host/a//b", "zookeeper://host/" + long, "zookeeper://user@host/e"},
	"consul":     {"consul:bad", "consul://", "consul://host", "consul://host/", "consul://host/" + long, "consul://user@host/e", "consul://host/e?token_file=x&datacenter=a&datacenter=b"},
}

// A wrong URL is told from a fault that passes, whatever is wrong with it: no command tries it again.
func TestWrongURLs(t *testing.T) {
	withKeys(t)
	t.Setenv("AWS_REGION", "eu-central-1")
	for _, k := range store.Kinds {
		urls := bad[k.Schemes[0]]
		if len(urls) == 0 {
			t.Errorf("there is no wrong URL of %s", k.Schemes[0])
		}
		with := "?"
		if strings.Contains(k.Form, "?") {
			with = "&"
		}
		for _, all := range []string{"nonsense=1", "nonsense", "nonsense=", "x=%zz", "x=a;b"} {
			urls = append(urls, k.Form+with+all)
		}
		for _, raw := range append(urls, k.Form+"#fragment", k.Form+with+"tls_cert=/no/file") {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			d, err := store.ByItself(ctx, raw)
			cancel()
			if err == nil {
				store.Close(d)
			}
			if len(raw) > 100 {
				raw = raw[:100] + "..."
			}
			if !store.Wrong(err) || !errors.Is(err, leaderelection.ErrPermanent) && !errors.Is(err, store.ErrURL) || strings.Count(err.Error(), leaderelection.ErrPermanent.Error()) > 1 {
				t.Errorf("%s: %v", raw, err)
			}
		}
	}
}

// groups are groups of each store: nothing of theirs can be reached.
func groups(t *testing.T) map[string]string {
	dir := t.TempDir()
	const at = "127.0.0.1:1"
	return map[string]string{
		"file":        "file://" + dir + "/orders",
		"gs":          "gs://bucket/a/orders?anonymous=true&endpoint=http://" + at,
		"s3":          "s3://bucket/a/orders?region=us-east-1&path_style=true&endpoint=http://" + at,
		"azblob":      "azblob://account/container/a/orders?endpoint=http://" + at + "/account",
		"dynamodb":    "dynamodb://table/orders?region=us-east-1&create=true&endpoint=http://" + at,
		"nats":        "nats://" + at + "/bucket/orders?create=true",
		"etcd":        "etcd://" + at + "/a/orders",
		"etcds":       "etcds://" + at + "/orders",
		"redis":       "redis://" + at + "/0?key=a:orders&channel=mine",
		"rediss":      "rediss://" + at + "/0?key=orders",
		"redis+unix":  "redis+unix://" + dir + "/none.sock?key=orders",
		"postgres":    "postgres://user@" + at + "/database?election=orders&create=true",
		"postgresql":  "postgresql://user@" + at + "/database?election=orders",
		"mysql":       "mysql://user@" + at + "/database?election=orders&create=true",
		"mariadb":     "mariadb://user@" + at + "/database?election=orders",
		"sqlite":      "sqlite://" + dir + "/app.db?election=orders&create=true",
		"mongodb":     "mongodb://" + at + "/database/collection/orders",
		"mongodb+srv": "", // looks a name up
		"rethinkdb":   "rethinkdb://" + at + "/database/table/orders",
		"kubernetes":  "kubernetes://namespace/orders?kubeconfig=" + kubeconfig(t, at),
		"zookeeper":   "zookeeper://" + at + "/elections/orders?create=true",
		"consul":      "consul://" + at + "/elections/orders",
	}
}

// Every store takes the names of a group's records, and keeps them apart: from each other,
// and from an election that is called like the group.
func TestEveryStoreTakesAGroup(t *testing.T) {
	withKeys(t)
	all := groups(t)
	for _, scheme := range store.Schemes() {
		raw, listed := all[scheme]
		if !listed {
			t.Errorf("groups in store_test.go lacks %s", scheme)
		}
		if raw == "" {
			continue
		}
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			election, _ := place(t, raw)
			places := map[string]string{election: "the election"}
			for _, name := range []string{"coordinator", "assignment", "seat-0", "seat-1", "seat-10", "seat-99999", "doctor", "doctor-2"} {
				one, err := store.InGroup(raw, name)
				if err != nil {
					t.Fatal(err)
				}
				at, err := place(t, one)
				switch {
				case err == nil && scheme != "file" && scheme != "sqlite":
					t.Errorf("%s: %s could be read", name, at)
				case errors.Is(err, store.ErrURL), errors.Is(err, leaderelection.ErrPermanent):
					t.Errorf("%s: %v", name, err)
				case !strings.Contains(at, "orders-"+name):
					t.Errorf("%s is at %s", name, at)
				case places[at] != "":
					t.Errorf("%s and %s are both at %s", name, places[at], at)
				}
				places[at] = name
			}
		})
	}
}

// place is where the record of a URL is, by the words of its store, and why it cannot be
// read.
func place(t *testing.T, raw string) (at string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d, err := store.ByItself(ctx, raw)
	if err != nil {
		return err.Error(), err // of those that connect: it names the place
	}
	defer store.Close(d)
	at = d.(fmt.Stringer).String()
	ended, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = d.ReadCurrent(ended)
	return at, err
}

// What a store does not take for a name is said when the group is opened, by its longest
// name.
func TestNamesThatAStoreDoesNotTake(t *testing.T) {
	all := groups(t)
	for raw, says := range map[string]string{
		strings.Replace(all["kubernetes"], "orders", "Orders", 1):                     "not a valid name of a Lease",
		strings.Replace(all["zookeeper"], "orders", "../orders", 1):                   "must not have",
		strings.Replace(all["consul"], "orders", "a//orders", 1):                      "must not have",
		strings.Replace(all["mysql"], "orders", strings.Repeat("x", 250), 1):          "must have 1 to",
		strings.Replace(all["mongodb"], "/collection/orders", "/orders", 1):           "want mongodb://host/database/collection/election",
		strings.Replace(all["rethinkdb"], "/table/orders", "/orders", 1):              "want rethinkdb://host/database/table/election",
		strings.Replace(all["azblob"], "/container/a/orders", "/orders", 1):           "want azblob://account/container/blob",
		strings.Replace(all["nats"], "/bucket/orders", "/orders", 1):                  "key",
		strings.Replace(all["dynamodb"], "/orders", "/"+strings.Repeat("x", 2040), 1): "the key has",
	} {
		g, err := store.OpenGroup(t.Context(), raw, "coordinator", time.Second)
		if err == nil {
			var d leaderelection.RaceDecider
			if d, err = g.Open(t.Context(), "coordinator"); err == nil {
				_, err = d.ReadCurrent(t.Context())
			}
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), says) || !errors.Is(err, leaderelection.ErrPermanent) {
			t.Errorf("%.120s: %v, want %q", raw, err, says)
		}
	}
}

// Whatever URL is given, the records of a group are of URLs that differ, that can be read,
// and that begin as it does.
func FuzzInGroup(f *testing.F) {
	for _, raw := range append(append([]string{
		"redis://h/0?key={name}&channel={name}", "gs://b/%7Bname%7D", "etcd://h/a?x={name}", "file:a/", "s3:///k?bucket=arn:aws:s3:x:1:accesspoint/{name}", "nats://h/{name}/{name}?a=%zz",
	}, store.Forms...), store.TLS...) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		one, err := store.InGroup(raw, "seat-1")
		other, err2 := store.InGroup(raw, "seat-12")
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%q: %v, but %v", raw, err, err2)
		}
		if err != nil {
			if !errors.Is(err, store.ErrURL) {
				t.Errorf("%q: %v, want ErrURL", raw, err)
			}
			return
		}
		u, err := store.Parse(one)
		v, err2 := store.Parse(other)
		if err != nil || err2 != nil || one == other {
			t.Fatalf("%q: %s and %s, %v, %v", raw, one, other, err, err2)
		}
		if u.Scheme != v.Scheme || u.User.String() != v.User.String() || store.Kind(one) != store.Kind(raw) {
			t.Errorf("%q: %s and %s", raw, one, other)
		}
	})
}

// alphabet is of what planted secrets are made: letters that no message has, and
// what URLs are parted by.
const alphabet = "QZJXQZJXQZJX/#?@:&=+% ;\"'\\<,"

// places are where a secret may be in a store's URL, one or more for each store.
var places = []string{
	"file://id:%s@host/x.json", "file:///nowhere/x.json?secret=%s",
	"gs://id:%s@bucket/o", "gs://bucket/o?secret=%s", "gs://bucket/o?endpoint=id:%s@host",
	"s3://id:%s@bucket/key", "s3://bucket/key?secret_access_key=%s", "s3://bucket/key?endpoint=id:%s@host:9000", "s3://bucket/key?region=x&endpoint=https://id:%s@host:99999",
	"azblob://account:%s@x/c/b", "azblob://account/c/b?sv=2020&sig=%s", "azblob://account/c/b?endpoint=http://id:%s@host",
	"dynamodb://id:%s@t/k", "dynamodb://t/k?secret=%s", "dynamodb://t/k?endpoint=id:%s@host",
	"nats://id:%s@127.0.0.1:1/b/k", "nats://%s@127.0.0.1:1/b/k", "nats://127.0.0.1:1/b/k?server=id:%s@127.0.0.1:1", "nats://127.0.0.1:1/b/k?password=%s",
	"etcd://id:%s@127.0.0.1:1/k", "etcds://id:%s@127.0.0.1:1/k", "etcd://127.0.0.1:1/k?password=%s",
	"redis://id:%s@127.0.0.1:1/0?key=a", "redis://:%s@127.0.0.1:1/x?key=a", "redis://127.0.0.1:1/0?password=%s", "redis+unix://id:%s@/run/x?key=a",
	"redis://127.0.0.1:1/0?key=a&cluster=true&addr=id:%s@127.0.0.1:1", "redis://127.0.0.1:1/0?key=a&master_name=m&password=%s&bad=1",
	"postgres://id:%s@127.0.0.1:1/db?election=a&sslmode=no", "postgres://127.0.0.1:1/db?election=a&password=%s&sslmode=no", "postgres://127.0.0.1:1/db?election=a&listen_url=postgres://id:%s@h/d",
	"mongodb://id:%s@127.0.0.1:1/d/c/e?w=0", "mongodb://127.0.0.1:1/d/c/e?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:%s,x", "mongodb://id:%s@127.0.0.1:1/d",
	"rethinkdb://id:%s@127.0.0.1:1/d/t/e", "rethinkdb://id:%s@127.0.0.1:1/d/t/e?timeout=0s", "rethinkdb://127.0.0.1:1/d/t/e?password=%s",
	"mysql://id:%s@127.0.0.1:1/db?election=a&tls=no", "mysql://id:%s@127.0.0.1:1", "mariadb://127.0.0.1:1/db?election=a&password=%s", "mysql://id:%s@/db?election=a&socket=/nowhere/x",
	"zookeeper://id:%s@127.0.0.1:1/x", "zookeeper://%s@127.0.0.1:1/x", "zookeeper://id:%s@127.0.0.1:1,127.0.0.1:2/x?acl=no", "zookeeper://127.0.0.1:1/x?password=%s",
	"consul://:%s@127.0.0.1:1/x?tls=no", "consul://id:%s@127.0.0.1:1/x", "consul://%s@127.0.0.1:1/x", "consul://:%s@127.0.0.1:1,127.0.0.1:2/x", "consul://127.0.0.1:1/x?token=%s", "consul:%s",
	"sqlite://id:%s@host/x.db?election=a", "sqlite:///nowhere/x.db?election=a&secret=%s",
	"kubernetes://id:%s@default/a", "kubernetes://default/a?token=%s",
	"nosuch://id:%s@host/x", "id:%s@host/x", "%s@host", "//id:%s@host/x",
}

// offline keeps SDKs from looking for credentials on the network.
func offline(t testing.TB) {
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_REGION", "nowhere")
	t.Setenv("GCE_METADATA_HOST", "127.0.0.1:1")
	t.Setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1")
}

// FuzzOpenTellsNoSecrets plants a secret in each store's URL and looks for any letter
// of it in what Open says.
func FuzzOpenTellsNoSecrets(f *testing.F) {
	offline(f)
	for i := range places {
		for _, data := range [][]byte{{}, {12, 1}, {13, 1}, {14, 1}, {15, 1}, {18, 1}, {20, 2}} {
			f.Add(i, data)
		}
	}
	f.Fuzz(func(t *testing.T, place int, data []byte) {
		if len(data) > 20 {
			t.Skip("longer inputs show nothing more")
		}
		secret := "Q"
		for _, b := range data {
			secret += string(alphabet[int(b)%len(alphabet)])
		}
		secret += "Z"
		form := places[uint(place)%uint(len(places))]
		for _, s := range []string{secret, url.QueryEscape(secret)} {
			raw := fmt.Sprintf(form, s)
			if !strings.Contains(form, "://") && strings.Contains(raw, "://") {
				continue // a scheme, and a host, are told
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // nothing shall be reached
			if _, err := store.Open(ctx, raw, time.Second); err == nil || strings.ContainsAny(err.Error(), "QZJX") {
				t.Fatalf("of %s this is told: %v", raw, err)
			}
			d, err := store.ByItself(ctx, raw)
			if err != nil {
				if strings.ContainsAny(err.Error(), "QZJX") {
					t.Fatalf("of %s this is told: %v", raw, err)
				}
				continue
			}
			// A decider that was made without I/O tells of its place, too.
			if _, err := d.ReadCurrent(ctx); err != nil && strings.ContainsAny(err.Error(), "QZJX") {
				t.Errorf("of %s this is told: %v", raw, err)
			}
			store.Close(d)
		}
	})
}
