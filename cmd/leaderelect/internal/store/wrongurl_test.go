package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/cmd/leaderelect/internal/store"
)

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
		for _, all := range []string{"nonsense=1", "nonsense", "x=%zz", "x=a;b"} {
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
