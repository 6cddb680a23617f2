// Package shard_test runs groups of package shard on stores, with members that are real processes.
package shard_test

import (
	"context"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	goredis "github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/etcd"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/natskv"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/deciders/postgres"
	"github.com/c8e606e4/leaderelection/deciders/redis"
	"github.com/c8e606e4/leaderelection/deciders/s3"
	"github.com/c8e606e4/leaderelection/internal/test/apart/grouptest"
	"github.com/c8e606e4/leaderelection/internal/test/fleet/proctest"
	"github.com/c8e606e4/leaderelection/internal/test/stores"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(silent{})
	deciders := open.Stores{
		"etcd": open.With(etcd.Open), "file": open.With(file.Open), "nats": open.With(natskv.Open),
		"postgres": open.With(postgres.Open), "redis": open.With(redis.Open), "s3": open.With(s3.Open),
	}
	grouptest.Main(m, func(ctx context.Context, u *url.URL) (leaderelection.RaceDecider, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // NATS connects at once, or not
		defer cancel()
		return deciders.Open(ctx, u.String())
	})
}

// silent keeps the client from logging what the tests provoke.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// See proctest.RunGroup.
func TestShards(t *testing.T) {
	stores.Nightly(t, "real processes by the wall clock")
	for store, group := range map[string]func(t *testing.T) proctest.GroupOptions{
		"etcd": func(t *testing.T) proctest.GroupOptions {
			endpoint := stores.Etcd(t).Endpoint
			return proctest.GroupOptions{Address: "etcd://" + endpoint + "/shards/{name}", Upstream: endpoint}
		},
		"file": func(t *testing.T) proctest.GroupOptions {
			return proctest.GroupOptions{Address: "file://" + filepath.Join(t.TempDir(), "{name}.json")}
		},
		"natskv": func(t *testing.T) proctest.GroupOptions {
			addr := stores.NATS(t).Addr
			return proctest.GroupOptions{Address: "nats://" + addr + "/shards/{name}?create=true", Upstream: addr}
		},
		"postgres": func(t *testing.T) proctest.GroupOptions {
			// Each record's handle of each process has a connection for its feed, and one for its calls.
			addr := stores.Postgres(t, "max_connections=400").Addr
			return proctest.GroupOptions{Address: "postgres://postgres@" + addr + "/postgres?sslmode=disable&election={name}&create=true", Upstream: addr}
		},
		"redis": func(t *testing.T) proctest.GroupOptions {
			addr := stores.Redis(t).Addr
			return proctest.GroupOptions{Address: "redis://" + addr + "?key=shards:{name}", Upstream: addr}
		},
		"s3": func(t *testing.T) proctest.GroupOptions {
			endpoint := stores.Versitygw(t)
			client := awss3.New(awss3.Options{
				Region: "us-east-1", BaseEndpoint: &endpoint, UsePathStyle: true,
				Credentials: credentials.NewStaticCredentialsProvider("root", "root-secret", ""),
			})
			if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: aws.String("groups")}); err != nil {
				t.Fatal(err)
			}
			return proctest.GroupOptions{
				Address:  "s3://groups/shards/{name}?region=us-east-1&path_style=true&endpoint=" + endpoint,
				Upstream: strings.TrimPrefix(endpoint, "http://"), Env: stores.AWSEnv("root", "root-secret"),
			}
		},
	} {
		t.Run(store, func(t *testing.T) { proctest.RunGroup(t, group(t)) })
	}
}
