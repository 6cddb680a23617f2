package legrpc

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/clocks"
	"github.com/c8e606e4/leaderelection/internal/route"
)

// ClientOptions are the settings of the client's interceptors and of [Builder.DialOptions]. The
// zero value is right for most.
type ClientOptions struct {
	// Election is the ServerOptions.Election of the servers. A call is sent again only if a
	// server of that election says that nobody has worked on it.
	Election string
	// Wait is how long after the first refusal a call may be sent again, at most until its ctx
	// ends. Zero means until its ctx ends: a leader that is stopped refuses calls until those
	// under way have ended, which may take its DrainTimeout. Negative means that a call is not
	// sent again.
	Wait time.Duration
	// Keepalive is how long a leader may be silent while calls wait for it. Then it is asked for
	// a sign of life. If none comes within 10 s, the connection is dead, and its calls end with
	// Unavailable. It is for [Builder.DialOptions] only. Zero means 6 min, the least that all
	// servers allow. If the servers have [KeepaliveServerOptions], set 10 s or more: 10 s is
	// gRPC's own minimum. Negative means never.
	Keepalive time.Duration
}

// The pauses between two attempts of a refused call.
const (
	firstPause = 20 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// client is shared by the interceptors of a channel.
type client struct {
	o     ClientOptions
	links *links // nil: not of a Builder
}

func newClient(o *ClientOptions, l *links) *client {
	return &client{o: route.Or(o), links: l}
}

// UnaryClientInterceptor sends a refused call again. A server behind [UnaryServerInterceptor]
// refuses a call, before anybody works on it, if the server does not lead. Channels with
// [Builder.DialOptions] have this interceptor already: use it for other channels.
//
// The caller gets all other errors. That includes the application's own FailedPrecondition, and the
// error of a call during which leadership ended.
func UnaryClientInterceptor(opts *ClientOptions) grpc.UnaryClientInterceptor {
	return newClient(opts, nil).unary
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams on which the client sends one
// message. It does not begin other streams again: the application must repeat its messages.
func StreamClientInterceptor(opts *ClientOptions) grpc.StreamClientInterceptor {
	return newClient(opts, nil).stream
}

func (c *client) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	var at peer.Peer
	o = append(o[:len(o):len(o)], grpc.Peer(&at))
	var r retry
	for {
		err := invoke(ctx, method, req, reply, cc, o...)
		if !r.again(ctx, c, err, &at) {
			return err
		}
	}
}

func (c *client) stream(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	if d.ClientStreams {
		return open(ctx, d, cc, method, o...)
	}
	s := &oneMessage{client: c, ctx: ctx, at: new(peer.Peer)}
	o = append(o[:len(o):len(o)], grpc.Peer(s.at))
	s.open = func() (grpc.ClientStream, error) { return open(ctx, d, cc, method, o...) }
	var err error
	s.ClientStream, err = s.open()
	if err != nil {
		return nil, err
	}
	return s, nil
}

// retry is the state of the retries of one call.
type retry struct {
	until time.Time
	pause time.Duration
}

// again waits after a refusal, and reports whether to send the call again.
func (r *retry) again(ctx context.Context, c *client, err error, at *peer.Peer) bool {
	if err == nil {
		return false
	}
	no, is := RefusalOf(err)
	if !is || no.Processed || no.Election != c.o.Election || c.o.Wait < 0 {
		return false
	}
	now := time.Now()
	if r.pause == 0 {
		r.until, r.pause = now.Add(c.o.Wait), firstPause
	}
	if c.links != nil && at.Addr != nil {
		c.links.refused(at.Addr.String())
	}
	pause := r.pause/2 + rand.N(r.pause/2)
	if c.o.Wait > 0 {
		pause = min(pause, r.until.Sub(now))
	}
	if pause <= 0 {
		return false
	}
	r.pause = min(2*r.pause, longPause)
	return clocks.System().SleepFor(ctx, pause)
}

// oneMessage is a stream that can be begun again until something has been received.
type oneMessage struct {
	grpc.ClientStream
	client *client
	ctx    context.Context
	open   func() (grpc.ClientStream, error)
	at     *peer.Peer
	retry  retry
	sent   []any // one message, at most
	closed bool
	begun  bool
}

func (s *oneMessage) SendMsg(m any) error {
	s.sent = append(s.sent, m)
	return s.ClientStream.SendMsg(m)
}

func (s *oneMessage) CloseSend() error {
	s.closed = true
	return s.ClientStream.CloseSend()
}

func (s *oneMessage) RecvMsg(m any) error {
	for {
		err := s.ClientStream.RecvMsg(m)
		if err == nil {
			s.begun = true
		}
		if s.begun || !s.retry.again(s.ctx, s.client, err, s.at) {
			return err
		}
		if err := s.restart(); err != nil {
			return err
		}
	}
}

// restart opens the stream again, and repeats the calls that were made until it was refused.
func (s *oneMessage) restart() error {
	next, err := s.open()
	if err != nil {
		return err
	}
	s.ClientStream = next
	for _, m := range s.sent {
		if err := next.SendMsg(m); err != nil {
			return err
		}
	}
	if s.closed {
		return next.CloseSend()
	}
	return nil
}

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
