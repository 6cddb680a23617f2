package store_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

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
			t.Skip()
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
