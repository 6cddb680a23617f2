package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/c8e606e4/leaderelection/deciders/internal/lines"
	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/redact"
)

// What Open sets. A dead peer is noticed within 13 s, since gRPC pings after 10 s at the earliest, or
// when a call is given up. A lost connection is tried again every 2 s at most.
const (
	dialTimeout      = 5 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	reconnectDelay   = 2 * time.Second
)

// Open returns the election that u names, with a client of its own, which Close
// closes:
//
//	etcd://host:2379,host:2379/key      in the clear, unless a TLS file is named
//	etcds://host:2379,host:2379/key     with TLS
//
// The default port is 2379. The key is what follows the first slash, with percent escapes decoded.
// For a key that begins with a slash write two. Query parameters, all optional:
//
//	tls_ca=FILE       the authorities of the servers' certificates, PEM (else the system's)
//	tls_cert=FILE     a client certificate, PEM
//	tls_key=FILE      its key, PEM
//	server_name=NAME  the name to expect in the servers' certificates
//	feed_grace=1s     Options.FeedGrace
//
// Each of the three files implies TLS. They are read again for each connection, so renewed
// certificates need no restart.
//
// User and password come from u, or as with etcdctl from ETCDCTL_USER (user, or user:password) and
// ETCDCTL_PASSWORD in the environment. With them Open logs in, for at most 5 s and no longer than
// ctx. Otherwise it does no I/O. Other parameters are errors.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	l := &lines.Lines{}
	cfg, key, opts, err := parse(u, l)
	if err != nil {
		return nil, store.OpenError("etcd", u, err)
	}
	params := u.Query()
	params.Del("feed_grace")
	shared := fmt.Sprint(cfg.Endpoints, cfg.Username, cfg.Password, params.Encode())
	client, done, err := clients.Open(ctx, shared, func(ctx context.Context) (own, func() error, error) {
		login := new(atomic.Pointer[error])
		client, done, err := connect(ctx, cfg, login)
		return own{client, l, login}, done, err
	})
	if err != nil {
		b := &backend{client: &clientv3.Client{}}
		e := store.Election[version]{Store: b, Package: "etcd", Place: place(key, cfg.Endpoints)}
		return nil, e.Failed(ctx, "logging in for", redact.Error(err, u.String()))
	}
	d := NewDecider(client.Client, key, opts)
	d.close, d.election.Drop, d.b.login = done, client.Drop, client.login
	return d, nil
}

// own is a client that Open has made.
type own struct {
	*clientv3.Client
	*lines.Lines
	login *atomic.Pointer[error] // why its last login has failed
}

// connect makes the client, and logs in if there is a user. It gives up when ctx ends.
func connect(ctx context.Context, cfg *clientv3.Config, login *atomic.Pointer[error]) (*clientv3.Client, func() error, error) {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cfg.Context = base
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(noteLogin(login)))
	ended := context.AfterFunc(ctx, cancel)
	client, err := clientv3.New(*cfg)
	if !ended() && err == nil {
		_ = client.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if said := login.Load(); said != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
			err = fmt.Errorf("%w: %w", err, connectionError(*said))
		}
		return nil, nil, err
	}
	return client, func() error {
		defer cancel()
		if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("leaderelection/etcd: closing the client: %w", err)
		}
		return nil
	}, nil
}

// noteLogin keeps what gRPC says of a login that fails, until one succeeds: etcd's client says no
// more than that time was up.
func noteLogin(said *atomic.Pointer[error]) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		switch {
		case method != "/etcdserverpb.Auth/Authenticate":
		case err != nil && (ctx.Err() == nil || said.Load() == nil): // the end of ctx says less than a refusal
			said.Store(&err)
		case err == nil:
			said.Store(nil)
		}
		return err
	}
}

// parse reads u. Errors hold no secrets.
func parse(u *url.URL, l *lines.Lines) (cfg *clientv3.Config, key string, opts *Options, err error) {
	key = strings.TrimPrefix(u.Path, "/")
	hosts, wrongHost := store.Hosts(u, "2379")
	p, wrongQuery := store.ParseParams(u)
	switch {
	case u.Scheme != "etcd" && u.Scheme != "etcds":
		err = fmt.Errorf("the scheme is %q; want etcd://host:2379/key, or etcds for TLS", u.Scheme)
	case u.Host == "":
		err = errors.New("no host is named: etcd://host:2379/key")
	case key == "":
		err = errors.New("no key is named: etcd://host:2379/key")
	default:
		err = cmp.Or(wrongHost, wrongQuery)
	}
	if err != nil {
		return nil, "", nil, err
	}
	files, name := p.TLSFiles(), p.String("server_name")
	opts = &Options{FeedGrace: p.Duration("feed_grace")}
	secure := u.Scheme == "etcds" || !files.None()
	if name != "" && !secure {
		p.Wrong("server_name is for TLS: write etcds://")
	}
	if err := p.Rest(); err != nil {
		return nil, "", nil, err
	}
	cfg = &clientv3.Config{
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(), // errors are returned, and the campaign logs them
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectDelay},
			MinConnectTimeout: dialTimeout,
		})},
	}
	setUser(cfg, u)
	scheme, tlsFiles := "http://", (*store.TLSFiles)(nil)
	if secure {
		scheme, tlsFiles = "https://", &files
	}
	for _, host := range hosts {
		cfg.Endpoints = append(cfg.Endpoints, scheme+host)
	}
	if name != "" { // in tls.Config it would have no effect: etcd's client sets each endpoint's own host
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithAuthority(name))
	}
	creds, err := newListed(l, tlsFiles)
	if err != nil {
		return nil, "", nil, err
	}
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithTransportCredentials(creds))
	return cfg, key, opts, nil
}

// setUser takes user and password from u, or else from the environment.
func setUser(cfg *clientv3.Config, u *url.URL) {
	user, password, both := strings.Cut(os.Getenv("ETCDCTL_USER"), ":")
	if !both {
		password = os.Getenv("ETCDCTL_PASSWORD")
	}
	if u.User != nil {
		user = u.User.Username()
		if p, given := u.User.Password(); given {
			password = p
		}
	}
	if user != "" {
		cfg.Username, cfg.Password = user, password
	}
}

// listed are credentials that list the connections that they secure: a dialer would do without
// proxies. With TLS they go by files that are read for each connection: etcd's client reads the
// authorities once.
type listed struct {
	credentials.TransportCredentials // without TLS, or by the files as they were at first
	lines                            *lines.Lines
	files                            *store.TLSFiles // nil: without TLS
	latest                           *atomic.Pointer[credentials.TransportCredentials]
}

// newListed returns credentials with TLS by these files, or without TLS for nil.
func newListed(l *lines.Lines, files *store.TLSFiles) (*listed, error) {
	c := &listed{insecure.NewCredentials(), l, files, new(atomic.Pointer[credentials.TransportCredentials])}
	if files != nil {
		cfg, err := files.Load()
		if err != nil {
			return nil, err
		}
		c.TransportCredentials = credentials.NewTLS(cfg)
	}
	c.latest.Store(&c.TransportCredentials)
	return c, nil
}

// ClientHandshake implements credentials.TransportCredentials. If the files cannot be
// read it goes by those that could last: somebody may be about to renew them.
func (c *listed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn = c.lines.Add(conn)
	var unread error
	if c.files != nil {
		var cfg *tls.Config
		if cfg, unread = c.files.Load(); unread == nil {
			latest := credentials.NewTLS(cfg)
			c.latest.Store(&latest)
		}
	}
	secured, info, err := (*c.latest.Load()).ClientHandshake(ctx, authority, conn)
	if err != nil {
		_ = conn.Close()
		if unread != nil {
			err = fmt.Errorf("%w, by the files as they were, since now: %w", err, unread)
		}
	}
	return secured, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *listed) Clone() credentials.TransportCredentials {
	clone := *c
	clone.TransportCredentials = c.TransportCredentials.Clone()
	return &clone
}
