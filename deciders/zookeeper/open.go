package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
)

// Open returns a handle on the election that u names, with a connection of its own, which
// Close closes:
//
//	zookeeper://host:2181/elections/web
//	zookeeper://a:2181,b:2181,c:2181/elections/web?create=true
//	zookeeper://user:password@a,b,c/elections/web?acl=owner&tls_ca=ca.pem
//
// The default port is 2181. The path is the znode's, from the root, with any chroot before it. User
// and password are credentials of the digest scheme. The parameters, all optional:
//
//	create           true: Options.CreateParents
//	acl              of what is created: open for all (the default), owner for those
//	                 credentials alone, or owner-write, so that others may read
//	session_timeout  (5s)
//	feed_silence     (30s)
//	tls              true: with TLS, which checks the servers' certificates
//	tls_ca, tls_cert, tls_key
//	                 files in PEM form, read again for each connection; they imply tls
//
// Open does not wait for the connection.
func Open(ctx context.Context, u *url.URL) (*Decider, error) {
	d, err := open(ctx, u)
	if err != nil {
		return nil, store.OpenError("zookeeper", u, err)
	}
	return d, nil
}

func open(ctx context.Context, u *url.URL) (*Decider, error) {
	if u.Scheme != "zookeeper" {
		return nil, fmt.Errorf("the scheme is %q, and must be zookeeper", u.Scheme)
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, errors.New("it must begin with zookeeper:// and name a host")
	}
	if strings.Contains(u.EscapedPath(), "@") {
		return nil, errors.New("a / in a password must be written %2F, and an @ in a path %40") // else parts of it would be shown
	}
	servers, err := store.Hosts(u, "2181")
	if err != nil {
		return nil, err
	}
	p, err := store.ParseParams(u)
	if err != nil {
		return nil, err
	}
	password, credentials := u.User.Password()
	if credentials = credentials && u.User.Username() != ""; u.User != nil && !credentials {
		p.Wrong("credentials are user:password@")
	}
	opts := &Options{ACL: acl(p, credentials), CreateParents: p.Bool("create"), FeedSilence: p.Duration("feed_silence")}
	connect := &ConnectOptions{SessionTimeout: p.Duration("session_timeout")}
	var files store.TLSFiles
	connect.TLS, files = encrypted(p)
	if err := p.Rest(); err != nil {
		return nil, err
	}
	if err := checkPath(u.Path); err != nil {
		return nil, err
	}
	type shared struct {
		*zk.Conn
		why *atomic.Pointer[error]
	}
	key := fmt.Sprint(servers, u.User, connect.SessionTimeout, connect.TLS != nil, files)
	conn, done, err := clients.Open(ctx, key, func(context.Context) (shared, func() error, error) {
		var why atomic.Pointer[error]
		connect.failed = func(err error) { why.Store(&err) }
		conn, err := Connect(servers, connect)
		if err != nil {
			return shared{}, nil, err
		}
		return shared{conn, &why}, func() error { conn.Close(); return nil }, nil
	})
	if err != nil {
		return nil, err
	}
	d := NewDecider(conn.Conn, u.Path, opts)
	d.close = done
	d.election.Place += store.At(u.Host)
	d.b.why = func() error {
		if err := conn.why.Load(); err != nil {
			return *err
		}
		return nil
	}
	if credentials {
		d.b.login = func() error { return conn.AddAuth("digest", []byte(u.User.Username()+":"+password)) }
	}
	return d, nil
}

func acl(p *store.Params, credentials bool) []zk.ACL {
	kind := cmp.Or(p.OneOf("acl", "open", "owner", "owner-write"), "open")
	switch {
	case kind == "open":
		return nil
	case !credentials:
		p.Wrong("acl=%s needs credentials: user:password@", kind)
	case kind == "owner-write":
		return append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	}
	return zk.AuthACL(zk.PermAll)
}

// encrypted takes the parameters of TLS, and returns a ConnectOptions.TLS.
func encrypted(p *store.Params) (func(address string) (*tls.Config, error), store.TLSFiles) {
	on, files := p.TLS()
	if !on {
		return nil, files
	}
	return func(address string) (*tls.Config, error) {
		c, err := files.Load()
		if err != nil {
			return nil, err
		}
		c.ServerName, _, err = net.SplitHostPort(address)
		return c, err
	}, files
}
