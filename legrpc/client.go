package legrpc

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/c8e606e4/leaderelection/clocks"
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
	c := &client{links: l}
	if o != nil {
		c.o = *o
	}
	return c
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
