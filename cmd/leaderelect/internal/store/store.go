// Package store opens the store that a URL names.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/deciders/file"
	"github.com/c8e606e4/leaderelection/deciders/open"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// ErrURL is what a URL that names no store is refused with.
var ErrURL = errors.New("the store's URL is wrong")

// Wrong reports whether err is that the URL is wrong, be it its scheme or a parameter: so the
// command line is.
func Wrong(err error) bool { return errors.Is(err, ErrURL) || errors.Is(err, open.ErrURL) }

// builtIn are the stores of this build, by their tags. Each has a file of its own, which its
// tag leaves out: hence init.
var builtIn = map[string]open.Opener{}

func has[D leaderelection.RaceDecider](tag string, o func(context.Context, *url.URL) (D, error)) {
	builtIn[tag] = open.With(o)
}

// loggers give a logger to drivers that would write to stderr otherwise.
var loggers []func(*slog.Logger)

// LogDrivers has log take what the stores' drivers say by themselves.
func LogDrivers(log *slog.Logger) {
	logger.Store(log)
	for _, set := range loggers {
		set(log)
	}
}

// logger takes what is to be said of a store's client.
var logger atomic.Pointer[slog.Logger]

// stores are what this build can open, by scheme.
func stores() open.Stores {
	all := open.Stores{"file": open.With(file.Open)}
	for _, k := range kinds {
		for _, scheme := range k.Schemes {
			if o := builtIn[k.Tag]; o != nil {
				all[scheme] = o
			}
		}
	}
	return all
}

// unknown is why no store of this build goes by u.
func unknown(u *url.URL) error {
	if tag := kindOf(u.Scheme).Tag; tag != "" {
		return fmt.Errorf("%w: this build of leaderelect was made without %s, which %s:// URLs need: take one that was built without the tag %s (it has %s)",
			ErrURL, strings.TrimPrefix(tag, "no_"), u.Scheme, tag, strings.Join(BuiltIn(), ", "))
	}
	return fmt.Errorf("%w: no store has the scheme of %q; known are:\n  %s", ErrURL, redact.URL(u.String()), strings.Join(Forms, "\n  "))
}

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
	return all.Open(open.WithLogger(ctx, logger.Load()), raw)
}

// making are the parameters by which a store makes the table, bucket or directory that is missing, and how.
var making = []string{"create", "create_companions", "replicas", "storage", "description"}

// Existing is raw without them: it names what is there. A command that does not campaign may belong to
// another user than the candidates, and what it made would be closed to them.
func Existing(raw string) string {
	place, query, found := strings.Cut(raw, "?")
	if !found {
		return raw
	}
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(parameter string) bool {
		name, _, _ := strings.Cut(parameter, "=")
		name, err := url.QueryUnescape(name)
		return err == nil && slices.Contains(making, name)
	})
	if len(kept) == 0 {
		return place
	}
	return place + "?" + strings.Join(kept, "&")
}

// Scratch is the URL of a record next to the one that raw names.
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

// kind is a store, without its Open function, which a build may leave out.
type kind struct {
	Schemes []string // of its URLs; the first one is its name
	Tag     string   // the build tag that leaves it out of the program; empty: it is always there
	Form    string   // of its URLs, for help texts
	Secure  []string // forms for connections with TLS, and by a socket, for help texts
	// Secrets are the variables of the environment in which its own tools, and its decider,
	// look for a password. Credentials of a cloud are not among them: they are a machine's,
	// which its programs share.
	Secrets []string
	// Parameter names an election, if the path names something larger.
	Parameter string
	// Hosted says that no server stands for the host, but a part of the record's place.
	Hosted bool
}

// kinds are all stores. For a new one, add an entry here and a file with_NAME.go.
// TestEveryStoreIsListed names the other places that must list it.
var kinds = []kind{
	{Schemes: []string{"file"}, Form: "file:///var/lib/app/election.json"},
	{Schemes: []string{"gs"}, Tag: "no_gcs", Form: "gs://bucket/object", Hosted: true},
	{Schemes: []string{"s3"}, Tag: "no_s3", Form: "s3://bucket/key?region=eu-central-1", Hosted: true},
	{Schemes: []string{"azblob"}, Tag: "no_azblob", Form: "azblob://account/container/blob", Hosted: true},
	{Schemes: []string{"dynamodb"}, Tag: "no_dynamodb", Form: "dynamodb://table/key?region=eu-central-1", Hosted: true},
	{
		Schemes: []string{"nats"}, Tag: "no_nats", Form: "nats://host:4222/bucket/key",
		Secure: []string{"nats://host:4222/bucket/key?tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem"},
	},
	{
		Schemes: []string{"etcd", "etcds"}, Tag: "no_etcd", Form: "etcd://host:2379/key",
		Secure:  []string{"etcds://host:2379/key?tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem"},
		Secrets: []string{"ETCDCTL_USER", "ETCDCTL_PASSWORD"},
	},
	{
		Schemes: []string{"redis", "rediss", "redis+unix"}, Tag: "no_redis", Form: "redis://host:6379/0?key=election",
		Secure: []string{
			"rediss://host:6379/0?key=election&tls_ca=ca.pem&tls_cert=me.pem&tls_key=me-key.pem",
			"redis+unix:///run/redis.sock?key=election",
		},
		Secrets: []string{"REDISCLI_AUTH"}, Parameter: "key",
	},
	{
		Schemes: []string{"postgres", "postgresql"}, Tag: "no_postgres", Form: "postgres://user@host:5432/database?election=name",
		Secure:  []string{"postgres://user@host/database?election=name&tls_ca=ca.pem"},
		Secrets: []string{"PGPASSWORD", "PGSSLPASSWORD"}, Parameter: "election",
	},
	{
		Schemes: []string{"mysql", "mariadb"}, Tag: "no_mysql", Form: "mysql://user@host:3306/database?election=name",
		Secure:  []string{"mysql://user@host/database?election=name&tls_ca=ca.pem"},
		Secrets: []string{"MYSQL_PWD"}, Parameter: "election",
	},
	{Schemes: []string{"sqlite"}, Tag: "no_sqlite", Form: "sqlite:///var/lib/app/app.db?election=name", Parameter: "election"},
	{
		Schemes: []string{"mongodb", "mongodb+srv"}, Tag: "no_mongodb", Form: "mongodb://host:27017/database/collection/election",
		Secure: []string{"mongodb://host/database/collection/election?tls_ca=ca.pem"},
	},
	{
		Schemes: []string{"rethinkdb"}, Tag: "no_rethinkdb", Form: "rethinkdb://host:28015/database/table/election",
		Secure: []string{"rethinkdb://host/database/table/election?tls_ca=ca.pem"},
	},
	{Schemes: []string{"kubernetes"}, Tag: "no_kubernetes", Form: "kubernetes://namespace/lease", Hosted: true},
	{
		Schemes: []string{"zookeeper"}, Tag: "no_zookeeper", Form: "zookeeper://host:2181,host:2181/path",
		Secure: []string{"zookeeper://host:2281/path?tls_ca=ca.pem"},
	},
	{
		Schemes: []string{"consul"}, Tag: "no_consul", Form: "consul://host:8500/key",
		Secure:  []string{"consul://host:8501/key?tls_ca=ca.pem"},
		Secrets: []string{"CONSUL_HTTP_TOKEN", "CONSUL_HTTP_AUTH"},
	},
}

// Forms are the URLs that Open takes, one for each store, for help texts. TLS are those for
// connections with TLS, and by a socket.
var Forms, TLS = forms()

func forms() (plain, secure []string) {
	for _, k := range kinds {
		plain, secure = append(plain, k.Form), append(secure, k.Secure...)
	}
	return plain, secure
}

// Tags are the build tags that leave a store out of the program, one for each.
func Tags() (all []string) {
	for _, k := range kinds {
		if k.Tag != "" {
			all = append(all, k.Tag)
		}
	}
	slices.Sort(all)
	return all
}

// Kind is which store a URL, or its scheme alone, names: one word for each.
func Kind(raw string) string {
	if k := kindOf(raw); len(k.Schemes) > 0 {
		return k.Schemes[0]
	}
	scheme, _, _ := strings.Cut(raw, ":")
	return strings.ToLower(scheme)
}

// Secrets are the variables of the environment in which the password of raw's store may be.
func Secrets(raw string) []string { return kindOf(raw).Secrets }

// kindOf is the store that a URL, or its scheme alone, names; a zero one if there is none.
func kindOf(raw string) kind {
	scheme, _, _ := strings.Cut(raw, ":")
	for _, k := range kinds {
		if slices.Contains(k.Schemes, strings.ToLower(scheme)) {
			return k
		}
	}
	return kind{}
}
