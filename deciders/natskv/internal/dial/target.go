package dial

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Target is what a URL says.
type Target struct {
	Bucket, Key string
	Create      *jetstream.KeyValueConfig // nil: the bucket is there

	servers []string
	login
	secure            bool // the connection must be encrypted
	domain, apiPrefix string

	again func() (*Target, error) // reads the context again; nil: there is none
}

// Parse reads a URL, as natskv.Open has it. It does no I/O but for the files that it
// names.
func Parse(u *url.URL) (*Target, error) {
	if u.Scheme != "nats" {
		return nil, fmt.Errorf("the scheme is %q, want nats", u.Scheme)
	}
	if u.Opaque != "" {
		return nil, errors.New("want nats://host:port/bucket/key?parameter=value")
	}
	t := &Target{}
	var found bool
	if t.Bucket, t.Key, found = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); !found || t.Bucket == "" || t.Key == "" {
		return nil, fmt.Errorf("the path is %q, want /bucket/key", u.Path)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	if u.Host != "" {
		t.servers = append(t.servers, "nats://"+u.Host)
	}
	for _, host := range p.Strings("server") {
		t.servers = append(t.servers, "nats://"+host)
	}
	t.creds, t.nkey = p.String("creds"), p.String("nkey")
	var files store.TLSFiles
	t.secure, files = p.TLS()
	t.ca, t.cert, t.certKey = files.CA, files.Cert, files.Key
	t.inboxPrefix, t.domain = p.String("inbox_prefix"), p.String("domain")
	if password, both := u.User.Password(); both {
		t.user, t.password = u.User.Username(), password
	} else {
		t.token = u.User.Username()
	}
	saved := p.String("context")
	t.bucketParameters(p)
	if err := p.Rest(); err != nil {
		return nil, err
	}
	if saved != "" {
		said := *t
		again := func() (*Target, error) { t := said; return &t, t.fromContext(saved) }
		if t, err = again(); err != nil {
			return nil, err
		}
		t.again = again
	}
	if len(t.servers) == 0 {
		return nil, errors.New("no host: name one, or a context")
	}
	return t, nil
}

// Connection is what those have in common that can share a connection.
func (t *Target) Connection() string { return fmt.Sprint(t.servers, t.secure, t.login) }

// bucketParameters reads those that say how to make the bucket.
func (t *Target) bucketParameters(p *store.Params) {
	create, replicas, storage, description := p.Bool("create"), p.Int("replicas", 1, 5), p.OneOf("storage", "file", "memory"), p.String("description")
	if !create {
		if replicas != 0 || storage+description != "" {
			p.Wrong("replicas, storage and description are for a bucket to be made: give create=true as well")
		}
		return
	}
	t.Create = &jetstream.KeyValueConfig{Replicas: max(replicas, 1), Description: description}
	if storage == "memory" {
		t.Create.Storage = jetstream.MemoryStorage
	}
}
