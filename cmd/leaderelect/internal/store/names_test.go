package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

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
			t.Errorf("groups in names_test.go lacks %s", scheme)
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
