package legrpc

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// DialOptions returns the options by which a channel follows the leader. Pass them to
// grpc.NewClient, along with your credentials. They are the Builder as the channel's resolver,
// [UnaryClientInterceptor] and [StreamClientInterceptor], grpc.WaitForReady(true) for all calls, and
// a dialer by which the Builder knows the connections. So
//
//   - a call waits until its ctx ends while there is no leader, unless it has
//     grpc.WaitForReady(false);
//   - a channel leaves a leader that is silent for a second after the next leader is known: calls
//     that wait for it end with Unavailable, and may have taken effect;
//   - it notices a dead connection while calls wait on it, even if no other leader is known (see
//     ClientOptions.Keepalive);
//   - if another process is behind a leader's first address, and refuses, it uses the next
//     address;
//   - it does not dial a name that resolves to an address that is refused by default (see
//     BuilderOptions.CheckAddress).
//
// HTTP proxies of the environment are not used. If you dial yourself, add grpc.WithContextDialer
// after these options. Then the first and the last point are up to you.
func (b *Builder) DialOptions(opts *ClientOptions) []grpc.DialOption {
	c := newClient(opts, b.links)
	options := []grpc.DialOption{
		grpc.WithResolvers(b),
		grpc.WithContextDialer(b.dial),
		// Not by a service config of the resolver: that would replace the program's own.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.stream),
	}
	if every := c.o.Keepalive; every >= 0 {
		if every == 0 {
			every = keepalivePolite
		}
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: every, Timeout: keepaliveTimeout}))
	}
	return options
}

const (
	// keepalivePolite is a little more than the five minutes that servers with gRPC's defaults
	// want between pings.
	keepalivePolite = 6 * time.Minute
	// keepaliveTimeout is how soon a ping must be answered.
	keepaliveTimeout = 10 * time.Second
)

// KeepaliveServerOptions returns server options that let clients ask for signs of life as often as
// every five seconds. Use them with a ClientOptions.Keepalive of ten seconds or more: by gRPC's
// default a server closes a connection that is asked more often than every five minutes. The server
// also asks its clients every minute, so that clients that are gone keep no connection.
func KeepaliveServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: keepaliveTimeout}),
	}
}

// dial connects to a leader's address.
func (b *Builder) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if b.ownRule {
		d.Control = route.Control
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return b.links.add(conn, address), nil
}

const (
	// grace is how long a leader may be silent after the next one is known.
	grace = time.Second
	// avoidFor is for how long an address is left out if its process refuses calls. Then it is
	// offered again: the process may be the leader, which did not know it yet.
	avoidFor = time.Second
)

// links are the connections of a Builder's channels, and what was learned from them.
type links struct {
	mu        sync.Mutex
	open      map[*link]struct{}
	number    leaderelection.ElectionNumber // of the newest leader that a resolver reported
	addresses []string                      // of that leader
	avoided   map[string]time.Time          // addresses that refuse, and until when they are left out
	changed   chan struct{}                 // closed when avoided grows
}

func newLinks() *links {
	return &links{open: map[*link]struct{}{}, avoided: map[string]time.Time{}, changed: make(chan struct{})}
}

// link is a connection to a leader.
type link struct {
	net.Conn
	links   *links
	address string

	mu    sync.Mutex
	heard time.Time   // when something was last received
	check *time.Timer // set once the leader has another address
}

func (l *links) add(conn net.Conn, address string) *link {
	k := &link{Conn: conn, links: l, address: address, heard: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[k] = struct{}{}
	l.watch(k)
	return k
}

func (k *link) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	if n > 0 {
		k.mu.Lock()
		k.heard = time.Now()
		k.mu.Unlock()
	}
	return n, err
}

func (k *link) Close() error {
	k.links.mu.Lock()
	delete(k.links.open, k)
	k.links.mu.Unlock()
	k.mu.Lock()
	if k.check != nil {
		k.check.Stop()
	}
	k.mu.Unlock()
	return k.Conn.Close()
}

// leads notes the addresses of a leader. Links to other addresses are then watched.
func (l *links) leads(number leaderelection.ElectionNumber, addresses []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < l.number {
		return
	}
	if number > l.number {
		clear(l.avoided)
	}
	l.number, l.addresses = number, addresses
	for k := range l.open {
		l.watch(k)
	}
}

// watch closes k when it has been silent, if its address is not one of the leader's. The caller
// holds l.mu.
func (l *links) watch(k *link) {
	if l.number == leaderelection.NoElections || slices.Contains(l.addresses, k.address) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.check == nil {
		k.check = time.AfterFunc(grace, func() { l.leave(k) })
	}
}

// leave closes k, or looks again later.
func (l *links) leave(k *link) {
	l.mu.Lock()
	back := slices.Contains(l.addresses, k.address)
	l.mu.Unlock()
	k.mu.Lock()
	silent := time.Since(k.heard)
	switch {
	case back:
		k.check = nil
	case silent < grace:
		k.check.Reset(grace - silent)
	}
	k.mu.Unlock()
	if !back && silent >= grace {
		_ = k.Close() // the calls on it learn of it
	}
}

// refused notes that the process at a remote address has refused a call.
func (l *links) refused(remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.open {
		if k.RemoteAddr().String() == remote && slices.Contains(l.addresses, k.address) {
			l.avoided[k.address] = time.Now().Add(avoidFor)
			close(l.changed)
			l.changed = make(chan struct{})
			return
		}
	}
}

// offer returns the leader's addresses to offer to gRPC, and until when they are valid (zero: for
// good). It also returns a channel that is closed if that changes before.
func (l *links) offer(addresses []string) (offered []string, until time.Time, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, a := range addresses {
		if t := l.avoided[a]; t.After(now) {
			if until.IsZero() || t.Before(until) {
				until = t
			}
			continue
		}
		offered = append(offered, a)
	}
	if len(offered) == 0 {
		return addresses, time.Time{}, l.changed // none is better than the others
	}
	return offered, until, l.changed
}
