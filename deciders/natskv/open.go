package natskv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
)

// Open connects to NATS and returns a Decider that owns the connection: Close it.
// The URL is
//
//	nats://[user:password@|token@]host[:port]/bucket/key?parameter=value&...
//
// with tls:// in place of nats:// for a connection that must be encrypted. The
// key may have slashes. An unknown parameter, and one given twice, is an error;
// each is optional:
//
//	server        a further server's host:port; may be given several times
//	context       a context of the nats command line, for whatever the URL does
//	              not say itself; the host may then be left out: nats:///b/k?context=prod
//	creds         a file with a user's JWT and seed
//	nkey          a file with a user's nkey seed
//	tlsca         a file with the authorities to trust in place of the system's
//	tlscert       a file with this client's certificate, and
//	tlskey        one with its key
//	inbox_prefix  what the subjects of answers begin with, in place of _INBOX
//	domain        the JetStream domain that has the bucket
//	create        true: make the bucket where there is none, with
//	replicas      1 to 5 copies (default 1; take 3 in a cluster),
//	storage       file (default) or memory, and
//	description   a text for it
//
// Open fails where no server can be reached before ctx ends, or refuses the user
// (an ErrPermanent); later the connection is restored whenever it is lost, also by a
// server that refuses the user for a while. Its files are read again each time. What
// is wrong with the bucket is said by the first call of the Decider.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.NotOpened("natskv", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	target, err := parse(u)
	if err != nil {
		return nil, store.Wrong("%w", err)
	}
	nc, err := connect(ctx, target)
	if err != nil {
		return nil, err
	}
	js, err := target.jetStream(nc)
	if err != nil {
		nc.Close()
		return nil, store.Wrong("%w", err)
	}
	d := NewDecider(js, target.bucket, target.key, &Options{Create: target.create})
	d.owned = nc
	return d, nil
}

// target is what a URL says.
type target struct {
	bucket, key string
	servers     []string
	login
	domain    string
	apiPrefix string
	create    *jetstream.KeyValueConfig
}

// parse reads a URL. It does no I/O but for the files that it names.
func parse(u *url.URL) (*target, error) {
	if u.Scheme != "nats" && u.Scheme != "tls" {
		return nil, fmt.Errorf("the scheme is %q, want nats or tls", u.Scheme)
	}
	if u.Opaque != "" {
		return nil, errors.New("want nats://host:port/bucket/key?parameter=value")
	}
	t := &target{}
	var found bool
	if t.bucket, t.key, found = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); !found || t.bucket == "" || t.key == "" {
		return nil, fmt.Errorf("the path is %q, want /bucket/key", u.Path)
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	if u.Host != "" {
		t.servers = append(t.servers, u.Scheme+"://"+u.Host)
	}
	for _, host := range p.Strings("server") {
		t.servers = append(t.servers, u.Scheme+"://"+host)
	}
	t.creds, t.nkey = p.String("creds"), p.String("nkey")
	t.ca, t.cert, t.certKey = p.String("tlsca"), p.String("tlscert"), p.String("tlskey")
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
		if err := t.fromContext(saved); err != nil {
			return nil, err
		}
	}
	if len(t.servers) == 0 {
		return nil, errors.New("no host: name one, or a context")
	}
	return t, nil
}

// bucketParameters reads those that say how to make the bucket.
func (t *target) bucketParameters(p *store.Params) {
	create, replicas, storage, description := p.Bool("create"), p.Int("replicas", 1, 5), p.OneOf("storage", "file", "memory"), p.String("description")
	if !create {
		if replicas != 0 || storage+description != "" {
			p.Wrong("replicas, storage and description are for a bucket to be made: give create=true as well")
		}
		return
	}
	t.create = &jetstream.KeyValueConfig{Replicas: max(replicas, 1), Description: description}
	if storage == "memory" {
		t.create.Storage = jetstream.MemoryStorage
	}
}
