/*
Package fencegrpc carries fencing tokens over gRPC: package fence's Transport and Require, as
interceptors.

On the writer's channel they add the token of the leadership that a call's ctx belongs to. Once the
view has ended they do not send the call:

	conn, err := grpc.NewClient(target,
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor()))
	...
	ctx = fence.WithGate(ctx, fence.Gate{View: view, Election: "orders"})
	client.Put(ctx, ...)

On the resource's server they refuse each token that a [fence.Checker] does not admit:

	guard := fence.NewGuard("orders", 0)
	grpc.NewServer(
		grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(guard, nil)),
		grpc.ChainStreamInterceptor(fencegrpc.StreamServerInterceptor(guard, nil)))

The status is Aborted for a stale token, FailedPrecondition for a missing one, InvalidArgument for a
malformed one or another election's, and Unavailable if the Checker cannot decide. [Refused]
distinguishes these from the application's own.

A token does not prove who sends it. So put the interceptor that authenticates writers before these
in the chain. Methods that only read belong into ServerOptions.ReadOnly. See package fence, "Who may
raise a fence".
*/
package fencegrpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

// Key is the metadata key that carries a token.
const Key = "fencing-token"

const domain = "leaderelection/fence"

// refusals are what a writer is told, by error.
var refusals = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{fence.ErrStale, codes.Aborted, "FENCING_TOKEN_STALE"},
	{fence.ErrNoToken, codes.FailedPrecondition, "FENCING_TOKEN_MISSING"},
	{fence.ErrMalformed, codes.InvalidArgument, "FENCING_TOKEN_MALFORMED"},
	{fence.ErrOtherElection, codes.InvalidArgument, "FENCING_TOKEN_OF_ANOTHER_ELECTION"},
}

// Refused returns fence.ErrStale, ErrNoToken, ErrMalformed or ErrOtherElection if err is a server's
// refusal of a token. Otherwise it returns nil.
func Refused(err error) error {
	s, ok := status.FromError(err)
	if !ok || err == nil {
		return nil
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.Domain != domain {
			continue
		}
		for _, r := range refusals {
			if r.reason == info.Reason {
				return r.err
			}
		}
	}
	return nil
}

// ServerOptions are for the server's interceptors. The zero value is right for most.
type ServerOptions struct {
	// Exempt says which methods ("/package.Service/Method") need no token. List health and
	// reflection here. Nil: none.
	Exempt func(fullMethod string) bool
	// ReadOnly says which methods only read. They need no token. If they have one, it is judged
	// but not remembered, so that a read cannot shut a leader out. Nil: none.
	ReadOnly func(fullMethod string) bool
}

// judge is how the token of a method is judged: nil, not at all.
type judge func(context.Context, fence.Token) error

func (o *ServerOptions) judge(c fence.Checker, method string) (j judge, needed bool) {
	switch {
	case o != nil && o.Exempt != nil && o.Exempt(method):
		return nil, false
	case o != nil && o.ReadOnly != nil && o.ReadOnly(method):
		return c.Peek, false
	}
	return c.Check, true
}

// UnaryServerInterceptor lets only calls with an admitted token through. Handlers get the token
// from fence.TokenFrom.
func UnaryServerInterceptor(c fence.Checker, opts *ServerOptions) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		j, needed := opts.judge(c, info.FullMethod)
		ctx, _, err := j.admit(ctx, needed)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. It judges the token again with
// each message that arrives: if the stream's leader has been deposed since, the stream ends.
func StreamServerInterceptor(c fence.Checker, opts *ServerOptions) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		j, needed := opts.judge(c, info.FullMethod)
		ctx, judged, err := j.admit(ss.Context(), needed)
		if err != nil {
			return err
		}
		if !judged {
			return next(srv, ss)
		}
		return next(srv, &serverStream{ServerStream: ss, ctx: ctx, judge: j})
	}
}

// admit judges the token of a call, if it has one or needs one, and returns its ctx
// with it.
func (j judge) admit(ctx context.Context, needed bool) (with context.Context, judged bool, err error) {
	if j == nil {
		return ctx, false, nil
	}
	t, err := tokenIn(ctx)
	if errors.Is(err, fence.ErrNoToken) && !needed {
		return ctx, false, nil
	}
	if err == nil {
		err = j(ctx, t)
	}
	if err != nil {
		return nil, true, refusal(err)
	}
	return fence.WithToken(ctx, t), true, nil
}

func tokenIn(ctx context.Context) (fence.Token, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, Key); len(values) {
	case 0:
		return fence.Token{}, fence.ErrNoToken
	case 1:
		return fence.ParseToken(values[0])
	default:
		return fence.Token{}, fmt.Errorf("%w: there are %d", fence.ErrMalformed, len(values))
	}
}

// refusal is err as a status.
func refusal(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			s := status.New(r.code, err.Error())
			if with, err := s.WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: r.reason}); err == nil {
				s = with
			}
			return s.Err()
		}
	}
	// Not for the client to read: it may tell of the store.
	return status.Error(codes.Unavailable, "fence: the token cannot be judged now")
}

type serverStream struct {
	grpc.ServerStream
	ctx   context.Context
	judge judge
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	t, _ := fence.TokenFrom(s.ctx)
	if err := s.judge(s.ctx, t); err != nil {
		return refusal(err)
	}
	return nil
}

// UnaryClientInterceptor adds to each call the token of the leadership that its ctx belongs to, see
// fence.WithGate. Once that leadership's view has ended it does not send the call, and returns
// leaderelection.ErrNotLeading. If the ctx belongs to no leadership, it returns fence.ErrNoGate.
// Both are plain errors, not statuses.
//
// It asks the view when the call has a connection, and again each time that gRPC itself retries, so
// that a call that waits for its server does not go out late. If the view ends during a call, it
// cancels the call's ctx at most a second later.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		c, o, err := begin(ctx, o)
		if err != nil {
			return err
		}
		defer c.ctx.Stop()
		return c.explain(invoke(c.outgoing(), method, req, reply, cc, o...))
	}
}

// StreamClientInterceptor is UnaryClientInterceptor for streams. Once the view has ended it refuses
// each message, and also to close the stream in order.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		c, o, err := begin(ctx, o)
		if err != nil {
			return nil, err
		}
		s, err := open(c.outgoing(), d, cc, method, o...)
		if err != nil {
			c.ctx.Stop()
			return nil, c.explain(err)
		}
		context.AfterFunc(s.Context(), c.ctx.Stop)
		return &clientStream{ClientStream: s, call: c}, nil
	}
}

// call is one call under a gate. It is the call's credentials: gRPC asks for those
// when it has a connection, immediately before it sends.
type call struct {
	gate fence.Gate
	ctx  *viewctx.Context
	own  credentials.PerRPCCredentials // the caller's; nil: none
	sent atomic.Bool                   // an attempt had the token
}

var _ credentials.PerRPCCredentials = (*call)(nil)

func begin(ctx context.Context, o []grpc.CallOption) (*call, []grpc.CallOption, error) {
	c := &call{gate: fence.GateFrom(ctx)}
	if _, err := c.gate.Token(); err != nil {
		return nil, nil, err
	}
	c.ctx = viewctx.New(ctx, c.gate.View)
	for _, option := range o {
		if p, ok := option.(grpc.PerRPCCredsCallOption); ok {
			c.own = p.Creds // the last one holds, as in gRPC
		}
	}
	return c, append(o[:len(o):len(o)], grpc.PerRPCCredentials(c)), nil
}

// outgoing is the call's ctx without a token of the caller's own making.
func (c *call) outgoing() context.Context {
	md, ok := metadata.FromOutgoingContext(c.ctx)
	if !ok || len(md.Get(Key)) == 0 {
		return c.ctx
	}
	md.Delete(Key)
	return metadata.NewOutgoingContext(c.ctx, md)
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (c *call) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	all := map[string]string{}
	if c.own != nil {
		own, err := c.own.GetRequestMetadata(ctx, uri...) // which may take its time
		if err != nil {
			return nil, err
		}
		maps.Copy(all, own)
	}
	t, err := c.gate.Token()
	if err != nil {
		return nil, err
	}
	all[Key] = t.String()
	c.sent.Store(true)
	return all, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. A token is not a secret.
func (c *call) RequireTransportSecurity() bool {
	return c.own != nil && c.own.RequireTransportSecurity()
}

// explain says what became of a call that failed because its view has ended.
func (c *call) explain(err error) error {
	if err == nil {
		return nil
	}
	_, ended := c.gate.Token()
	cause := context.Cause(c.ctx)
	switch {
	case ended == nil:
		return err
	case !c.sent.Load():
		return ended
	case errors.Is(cause, leaderelection.ErrNotLeading), errors.Is(cause, leaderelection.ErrExpired): // of the view, or of the leader's ctx
		return fmt.Errorf("fencegrpc: this process ceased to lead during the call, which may have arrived: %w", err)
	}
	return err
}

type clientStream struct {
	grpc.ClientStream
	call *call
}

func (s *clientStream) SendMsg(m any) error {
	if err := s.open(); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

func (s *clientStream) CloseSend() error {
	if err := s.open(); err != nil {
		return err
	}
	return s.ClientStream.CloseSend()
}

// open ends the stream where the view has: what was sent is not to be taken for
// all.
func (s *clientStream) open() error {
	if _, err := s.call.gate.Token(); err != nil {
		s.call.ctx.Stop()
		return err
	}
	return nil
}
