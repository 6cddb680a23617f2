package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/c8e606e4/leaderelection/deciders/internal/store"
	"github.com/c8e606e4/leaderelection/internal/clients"
	"github.com/c8e606e4/leaderelection/internal/log/durations"
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

// ConnectOptions adjusts Connect. The zero value and nil are the same.
type ConnectOptions struct {
	// SessionTimeout: the client leaves a silent server after two thirds of it. It does not
	// affect a leader's term: the record does not depend on a session. Servers allow 2 to 20 of
	// their ticks. Zero: 5 s.
	SessionTimeout time.Duration
	// TLS returns the configuration for a new connection to an address. Nil: without TLS.
	TLS func(address string) (*tls.Config, error)
	// Logger takes what the client says by itself. Nil: silent.
	Logger zk.Logger

	failed  func(error)  // is told of each attempt; nil: it worked
	watched *atomic.Bool // some connection of this client has asked for a watch
}

// Connect makes a connection as elections need it, to servers given as "host:port". The default
// port is 2181. Write an IPv6 address in brackets. Names are looked up again for each attempt. Data
// that is not from ZooKeeper ends the connection, not the program. Connect returns at once, and
// connects in the background until the connection is closed.
func Connect(servers []string, opts *ConnectOptions) (*zk.Conn, error) {
	var o ConnectOptions
	if opts != nil {
		o = *opts
	}
	if err := durations.Fault("SessionTimeout", o.SessionTimeout, durations.Least); err != nil {
		return nil, fmt.Errorf("leaderelection/zookeeper: %w", err)
	}
	if o.Logger == nil {
		o.Logger = silent{}
	}
	servers, err := store.Hosts(&url.URL{Host: strings.Join(servers, ",")}, "2181")
	if err != nil {
		return nil, fmt.Errorf("leaderelection/zookeeper: %w", err)
	}
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 5*time.Second)
	o.watched = new(atomic.Bool)
	conn, _, err := zk.Connect(servers, o.SessionTimeout, zk.WithLogger(o.Logger), zk.WithLogInfo(false),
		zk.WithHostProvider(&hosts{}), zk.WithDialer(func(_, address string, timeout time.Duration) (net.Conn, error) { return o.dial(address, timeout) }))
	return conn, err
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// hosts takes the servers by turns, by their names: the client's own looks the names up
// once and for all.
type hosts struct {
	mu       sync.Mutex
	servers  []string
	at, last int // where it is, and where it was last connected
}

// Init implements zk.HostProvider.
func (h *hosts) Init(servers []string) error {
	h.servers, h.at, h.last = servers, -1, -1
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = (h.at + 1) % len(h.servers)
	retryStart = h.at == h.last
	h.last = max(h.last, 0)
	return h.servers[h.at], retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = h.at
}

// dial is what the client makes a connection by.
func (o *ConnectOptions) dial(address string, timeout time.Duration) (net.Conn, error) {
	c, err := o.secure(address, timeout)
	if o.failed != nil {
		o.failed(err)
	}
	if err != nil {
		return nil, err
	}
	f := &framed{Conn: c, patience: o.SessionTimeout, failed: o.failed, watched: o.watched, resumed: make(chan struct{})}
	f.resuming = o.watched.Load()
	return f, nil
}

func (o *ConnectOptions) secure(address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if o.TLS == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	config, err := o.TLS(address)
	if err != nil {
		return nil, err
	}
	return store.DialTLS(ctx, config, "tcp", address)
}

// framed is a connection that looks at how long each packet says that it is. The client
// believes it, whatever it is: it takes as much memory, or panics. It also waits for a
// server's first packet for many times its session, and for half of one for ever.
type framed struct {
	net.Conn
	patience time.Duration // with the first packet
	failed   func(error)   // as in ConnectOptions

	head [4]byte // of the packet to come
	have int     // of head
	left int     // of the packet
	late bool    // a packet was read

	watched  *atomic.Bool // as in ConnectOptions
	greeted  bool         // a packet was written
	resuming bool         // answers wait for resumed
	resumed  chan struct{}
	once     sync.Once // closes resumed
}

// The bounds of packets: a header, the answer to a connection, and what a server may
// be set to send (jute.maxbuffer is 1 MiB).
const (
	leastPacket = 16
	firstPacket = 20
	mostPacket  = 8 << 20
)

// resumeWithin is for how long answers wait at most for watches to be set again. A client that
// has none left does not set any.
const resumeWithin = 250 * time.Millisecond

// Of ZooKeeper's protocol: what a request asks for.
const (
	opExists     = 3
	opGetData    = 4
	opSetWatches = 101
)

// Write implements net.Conn. It is given whole packets: a length, a number, what is asked for.
//
// A client that has found a server again sets its watches again, from the last transaction
// that it knows of; but an answer to another request that comes just then counts as known,
// without a lock. What changed in between would not be told of. So Read keeps the first answer
// back until the watches were asked for.
func (f *framed) Write(p []byte) (int, error) {
	if n := len(p); f.greeted && n > 12 {
		switch op := binary.BigEndian.Uint32(p[8:]); {
		case op == opSetWatches:
			f.once.Do(func() { close(f.resumed) })
		case (op == opExists || op == opGetData) && p[n-1] == 1:
			f.watched.Store(true)
		}
	}
	f.greeted = true
	return f.Conn.Write(p)
}

// Close implements net.Conn.
func (f *framed) Close() error {
	f.once.Do(func() { close(f.resumed) })
	return f.Conn.Close()
}

var errNoPacket = errors.New("what answers is not ZooKeeper")

// SetReadDeadline implements net.Conn.
func (f *framed) SetReadDeadline(t time.Time) error {
	if latest := time.Now().Add(f.patience); (!f.late || f.left > 0) && (t.IsZero() || t.After(latest)) {
		t = latest
	}
	return f.Conn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (f *framed) Read(p []byte) (int, error) {
	if f.left > 0 {
		n, err := f.Conn.Read(p[:min(len(p), f.left)])
		f.left -= n
		return n, err
	}
	n, err := f.Conn.Read(p[:min(len(p), len(f.head)-f.have)])
	if f.late && f.resuming && err == nil {
		f.resuming = false
		select {
		case <-f.resumed:
		case <-time.After(min(resumeWithin, f.patience/8)): // well before the deadline of this read
		}
	}
	f.have += copy(f.head[f.have:], p[:n])
	if f.have < len(f.head) {
		return n, err
	}
	size := binary.BigEndian.Uint32(f.head[:])
	least := uint32(leastPacket)
	if !f.late {
		least = firstPacket
	}
	if size < least || size > mostPacket {
		err := fmt.Errorf("%w: a packet of %d bytes", errNoPacket, size)
		if f.failed != nil {
			f.failed(err)
		}
		return 0, err
	}
	f.have, f.left, f.late = 0, int(size), true
	return n, err
}
