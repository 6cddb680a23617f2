package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/c8e606e4/leaderelection/deciders/internal/lines"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// Open returns a handle on the election that u names, with a client of its own,
// which Close closes:
//
//	redis://user:password@localhost:6379/0?key=election:web
//	rediss://cache.example.com?key=election:web&tls_ca=ca.pem
//	redis://node-1:6379?key=election:web&cluster=true&addr=node-2:6379
//	redis://sentinel-1:26379/0?key=election:web&master_name=main&addr=sentinel-2:26379
//	redis+unix:///run/redis.sock?key=election:web
//
// The parameter key is required. Others are:
//
//   - channel, wait_replicas, wait_timeout and feed_silence, see Options;
//   - cluster=true for a Cluster, master_name for a master that Sentinels know, and addr for
//     further nodes of either;
//   - tls_ca, tls_cert and tls_key, PEM files, which imply rediss;
//   - those of go-redis's ParseURL, ParseClusterURL and ParseFailoverURL, such as dial_timeout or
//     skip_verify.
//
// A missing password comes from REDISCLI_AUTH in the environment, as with redis-cli. Retries are
// off unless max_retries says otherwise. Open only reads the files. They are read again for each
// connection, so renewed certificates need no restart.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.OpenError("redis", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	key := p.String("key")
	if key == "" {
		p.Wrong("it lacks the parameter key: add ?key=name-of-the-election")
	}
	opts := &Options{
		Channel:      p.String("channel"),
		WaitReplicas: p.Int("wait_replicas", 0, math.MaxInt32),
		WaitTimeout:  p.Duration("wait_timeout"),
		FeedSilence:  p.Duration("feed_silence"),
	}
	cluster, nodes := p.Bool("cluster"), p.Strings("addr")
	files := p.TLSFiles()
	theirs := p.Take("go-redis's", func(string) bool { return true })
	if theirs.Has("skip_verify") {
		files.Exclude(p, "skip_verify")
	}
	if err := p.Rest(); err != nil {
		return nil, err
	}
	scheme, err := schemeOf(u, files)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		theirs["addr"] = nodes
	}
	rest := *u
	rest.Scheme, rest.RawQuery = scheme, theirs.Encode()
	client, done, err := clients.Open(ctx, fmt.Sprint(rest.String(), cluster, files), func(context.Context) (listed, func() error, error) {
		l := new(lines.Lines)
		client, err := connect(&rest, cluster, files, l)
		if err != nil {
			return listed{}, nil, err
		}
		return listed{client, l}, client.Close, nil
	})
	if err != nil {
		return nil, err
	}
	d := NewDecider(client.UniversalClient, key, opts)
	d.close, d.election.Drop = done, client.lines.Drop
	return d, nil
}

// listed is a client of Open's, and its connections.
type listed struct {
	redis.UniversalClient
	lines *lines.Lines
}

// connect makes the client. Its own retries are off: a candidate retries, and a
// call must not outlive it.
func connect(u *url.URL, cluster bool, files store.TLSFiles, l *lines.Lines) (redis.UniversalClient, error) {
	retries := u.Query().Has("max_retries")
	ours := func(dial *func(context.Context, string, string) (net.Conn, error), config *tls.Config, timeout time.Duration, byCtx *bool, password *string, max *int) {
		*dial, *byCtx, *password = dialer(files, config, timeout, l), true, cmp.Or(*password, os.Getenv("REDISCLI_AUTH"))
		if !retries {
			*max = -1
		}
	}
	switch {
	case cluster:
		o, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, err
		}
		ours(&o.Dialer, o.TLSConfig, o.DialTimeout, &o.ContextTimeoutEnabled, &o.Password, &o.MaxRetries)
		return redis.NewClusterClient(o), nil
	case u.Query().Has("master_name"):
		o, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, err
		}
		ours(&o.Dialer, o.TLSConfig, o.DialTimeout, &o.ContextTimeoutEnabled, &o.Password, &o.MaxRetries)
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	ours(&o.Dialer, o.TLSConfig, o.DialTimeout, &o.ContextTimeoutEnabled, &o.Password, &o.MaxRetries)
	return redis.NewClient(o), nil
}

// keepAlive is the period of the keep-alive packets of a connection without TLS, as the client's own.
const keepAlive = 5 * time.Minute

// schemeOf is the scheme that go-redis gets for u, with TLS if there are files.
func schemeOf(u *url.URL, files store.TLSFiles) (string, error) {
	switch socket := u.Scheme == "redis+unix"; {
	case u.Scheme != "redis" && u.Scheme != "rediss" && !socket:
		return "", fmt.Errorf("the scheme is %q; want redis, rediss for TLS, or redis+unix for a socket", u.Scheme)
	case socket && !files.None():
		return "", errors.New("tls_ca, tls_cert and tls_key imply TLS, which a socket does not have")
	case socket:
		return "unix", nil
	case u.Hostname() == "": // go-redis would take localhost, and each machine would have a leader of its own
		return "", fmt.Errorf("the URL names no server: write %s://host:6379/0?key=election:web", u.Scheme)
	case files.None():
		return u.Scheme, nil
	}
	_, err := files.Load()
	return "rediss", err
}

// dialer returns what makes each connection, with TLS by the files as they are then, and lists it.
func dialer(files store.TLSFiles, base *tls.Config, timeout time.Duration, l *lines.Lines) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if timeout <= 0 {
		timeout = answerTime // as the client's own default
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var c net.Conn
		var err error
		if files.None() && base == nil {
			c, err = (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, network, addr)
		} else {
			c, err = files.Dial(ctx, base, network, addr)
		}
		if err != nil {
			return nil, err
		}
		return l.Add(c), nil
	}
}
