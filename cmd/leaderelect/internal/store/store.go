// Package store opens the store that a URL names.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/redact"
)

// Forms are the URLs that Open takes, one for each store, for help texts.
var Forms = []string{
	"file:///var/lib/app/election.json",
	"gs://bucket/object",
	"s3://bucket/key?region=eu-central-1",
	"azblob://account/container/blob",
	"dynamodb://table/key?region=eu-central-1",
	"nats://host:4222/bucket/key",
	"etcd://host:2379/key",
	"redis://host:6379/0?key=election",
	"postgres://user@host:5432/database?election=name",
	"mysql://user@host:3306/database?election=name",
	"sqlite:///var/lib/app/app.db?election=name",
	"mongodb://host:27017/database/collection/election",
	"rethinkdb://host:28015/database/table/election",
	"kubernetes://namespace/lease",
	"zookeeper://host:2181,host:2181/path",
	"consul://host:8500/key",
}

// TLS are the forms for connections with TLS, and by a socket, for help texts.
var TLS = []string{
	"etcds://host:2379/key?cacert=ca.pem&cert=me.pem&cert_key=me-key.pem",
	"rediss://host:6379/0?key=election&tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem",
	"unix:///run/redis.sock?key=election",
	"tls://host:4222/bucket/key?tlsca=ca.pem&tlscert=me.pem&tlskey=me-key.pem",
	"postgres://user@host/database?election=name&sslmode=verify-full&sslrootcert=ca.pem",
	"mysql://user@host/database?election=name&tls=true&tls_ca=ca.pem",
	"mongodb://host/database/collection/election?tls=true&tlsCAFile=ca.pem",
	"rethinkdb://host/database/table/election?cacert=ca.pem",
	"zookeeper://host:2281/path?tls=true&tls_ca=ca.pem",
	"consul://host:8501/key?tls=true&tls_ca=ca.pem",
}

// ErrURL is what a URL that names no store is refused with.
var ErrURL = errors.New("the store's URL is wrong")

// tags are the build tag for each scheme that leaves its store out of the program. The
// store of files, which needs no client, is always there.
var tags = map[string]string{
	"azblob":   "no_azblob",
	"consul":   "no_consul",
	"dynamodb": "no_dynamodb",
	"etcd":     "no_etcd", "etcds": "no_etcd",
	"gs":         "no_gcs",
	"kubernetes": "no_kubernetes",
	"mongodb":    "no_mongodb", "mongodb+srv": "no_mongodb",
	"mysql": "no_mysql", "mariadb": "no_mysql",
	"nats": "no_nats", "tls": "no_nats",
	"postgres": "no_postgres", "postgresql": "no_postgres",
	"redis": "no_redis", "rediss": "no_redis", "unix": "no_redis",
	"rethinkdb": "no_rethinkdb",
	"s3":        "no_s3",
	"sqlite":    "no_sqlite",
	"zookeeper": "no_zookeeper",
}

// builtIn are the stores of this build, by their tags. Each has a file of its own, which its
// tag leaves out: hence init.
var builtIn = map[string]open.Opener{}

func has(tag string, o open.Opener) { builtIn[tag] = o }

// loggers give a logger to drivers that would write to stderr otherwise.
var loggers []func(*slog.Logger)

// LogDrivers has log take what the stores' drivers say by themselves.
func LogDrivers(log *slog.Logger) {
	for _, set := range loggers {
		set(log)
	}
}

// stores are what this build can open, by scheme.
func stores() open.Stores {
	all := open.Stores{"file": open.With(file.Open)}
	for scheme, tag := range tags {
		if o := builtIn[tag]; o != nil {
			all[scheme] = o
		}
	}
	return all
}

// unknown is why no store of this build goes by u.
func unknown(u *url.URL) error {
	if tag, known := tags[u.Scheme]; known {
		return fmt.Errorf("%w: this build of leaderelect was made without %s, which %s:// URLs need: take one that was built without the tag %s (it has %s)",
			ErrURL, strings.TrimPrefix(tag, "no_"), u.Scheme, tag, strings.Join(BuiltIn(), ", "))
	}
	return fmt.Errorf("%w: no store goes by %q; known are:\n  %s", ErrURL, redact.URL(u.String()), strings.Join(Forms, "\n  "))
}

// Tags are the build tags that leave a store out of the program, one for each.
func Tags() []string { return slices.Compact(slices.Sorted(maps.Values(tags))) }

// BuiltIn are the stores that this build has, as their build tags name them.
func BuiltIn() []string {
	all := []string{"file"}
	for tag := range builtIn {
		all = append(all, strings.TrimPrefix(tag, "no_"))
	}
	slices.Sort(all)
	return all
}

// Parse reads a store's URL. It does no I/O.
func Parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, redact.ErrUnreadable)
	case u.Scheme == "":
		return nil, fmt.Errorf("%w: it has no scheme; known are:\n  %s", ErrURL, strings.Join(Forms, "\n  "))
	}
	return u, nil
}

// Open opens the store that raw names. It gives up when ctx ends, or after
// patience; the Decider itself outlives both.
func Open(ctx context.Context, raw string, patience time.Duration) (leaderelection.RaceDecider, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	all := stores()
	if all[u.Scheme] == nil {
		return nil, unknown(u)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %v: %w", patience, context.DeadlineExceeded))
	defer cancel()
	return all.Open(ctx, raw)
}

// kinds are the schemes that are another name of a store's first one.
var kinds = map[string]string{
	"tls": "nats", "etcds": "etcd", "rediss": "redis", "unix": "redis", "mongodb+srv": "mongodb", "postgresql": "postgres",
	"mariadb": "mysql",
}

// Kind is which store a URL, or its scheme alone, names: one word for each.
func Kind(raw string) string {
	scheme, _, _ := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if k, other := kinds[scheme]; other {
		return k
	}
	return scheme
}

// Scratch is the URL of a record beside the one that raw names.
func Scratch(raw string) (string, error) {
	u, err := Parse(raw)
	if err != nil {
		return "", err
	}
	beside(u, "-doctor")
	return u.String(), nil
}

// beside has u name the record whose name is longer by suffix.
func beside(u *url.URL, suffix string) {
	q := u.Query()
	switch {
	case q.Get("key") != "":
		q.Set("key", q.Get("key")+suffix)
	case q.Get("election") != "":
		q.Set("election", q.Get("election")+suffix)
	case u.Opaque != "":
		u.Opaque += suffix
	default:
		u.Path += suffix
		if u.RawPath != "" {
			u.RawPath += suffix
		}
	}
	if q.Has(channel) {
		q.Set(channel, q.Get(channel)+suffix)
	}
	for _, leaders := range leadersAlone {
		q.Del(leaders)
	}
	u.RawQuery = q.Encode()
}

// channel is the parameter (redis) for where the writes of one record are told: candidates
// take whatever comes there for that record.
const channel = "channel"

// leadersAlone are parameters about what is the leader's alone.
var leadersAlone = []string{"native_lease", "companion", "create_companions"}

// Close closes what Open opened, if it holds a connection.
func Close(d leaderelection.RaceDecider) { _ = open.Close(d) }
