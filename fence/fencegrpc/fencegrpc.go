/*
Package fencegrpc carries fencing tokens over gRPC: package fence's Transport and
Require, as interceptors.

The writer's channel stamps each call with the token of the reign that its ctx
belongs to, and does not send it once the view has ended:

	conn, err := grpc.NewClient(target,
		grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()),
		grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor()))
	...
	ctx = fence.NewContext(ctx, fence.Gate{View: view, Election: "orders"})
	client.Put(ctx, ...)

The resource's server refuses what a [fence.Checker] does not admit:

	guard := fence.NewGuard("orders", 0)
	grpc.NewServer(
		grpc.ChainUnaryInterceptor(fencegrpc.UnaryServerInterceptor(guard, nil)),
		grpc.ChainStreamInterceptor(fencegrpc.StreamServerInterceptor(guard, nil)))

A stale token is refused with Aborted, a missing one with FailedPrecondition, a
malformed one or another election's with InvalidArgument, and where the Checker
cannot decide, with Unavailable. [Refused] tells them from the application's own.
*/
package fencegrpc

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c8e606e4/leaderelection/fence"
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

// Refused says whether err is a server's refusal of a token: then it returns
// fence.ErrStale, ErrNoToken, ErrMalformed or ErrOtherElection, else nil.
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

// ServerOptions are for the server's interceptors. The zero value is right for
// most.
type ServerOptions struct {
	// Exempt says which methods ("/package.Service/Method") need no token. Nil:
	// none are exempt, so register health and reflection here.
	Exempt func(fullMethod string) bool
}

// UnaryServerInterceptor lets only calls with an admitted token through. Handlers
// find it by fence.TokenOf.
func UnaryServerInterceptor(c fence.Checker, o *ServerOptions) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if o.exempts(info.FullMethod) {
			return next(ctx, req)
		}
		ctx, err := admit(ctx, c)
		if err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

// StreamServerInterceptor is UnaryServerInterceptor for streams. The token is
// judged again with each message that comes: a stream that was begun by a leader
// since deposed ends.
func StreamServerInterceptor(c fence.Checker, o *ServerOptions) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if o.exempts(info.FullMethod) {
			return next(srv, ss)
		}
		ctx, err := admit(ss.Context(), c)
		if err != nil {
			return err
		}
		return next(srv, &serverStream{ServerStream: ss, ctx: ctx, checker: c})
	}
}

func (o *ServerOptions) exempts(method string) bool {
	return o != nil && o.Exempt != nil && o.Exempt(method)
}

// admit judges the token of a call, and returns its ctx with it.
func admit(ctx context.Context, c fence.Checker) (context.Context, error) {
	t, err := tokenIn(ctx)
	if err == nil {
		err = c.Check(ctx, t)
	}
	if err != nil {
		return nil, refusal(err)
	}
	return fence.WithToken(ctx, t), nil
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
	ctx     context.Context
	checker fence.Checker
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	t, _ := fence.TokenOf(s.ctx)
	if err := s.checker.Check(s.ctx, t); err != nil {
		return refusal(err)
	}
	return nil
}

// UnaryClientInterceptor stamps each call with the token of the reign that its
// ctx belongs to (see fence.NewContext), and refuses to send it once that reign's
// view has ended, with fence.ErrViewEnded, or fence.ErrNoGate where the ctx
// belongs to none: errors of its own, not statuses.
func UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		ctx, err := stamp(ctx)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, o...)
	}
}

// StreamClientInterceptor is UnaryClientInterceptor for streams: each message is
// refused once the view has ended, and so is the stream's end.
func StreamClientInterceptor() grpc.StreamClientInterceptor {
	return func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		gate := fence.GateOf(ctx)
		ctx, err := stamp(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		s, err := open(ctx, d, cc, method, o...)
		if err != nil {
			cancel()
			return nil, err
		}
		context.AfterFunc(s.Context(), cancel)
		return &clientStream{ClientStream: s, gate: gate, cancel: cancel}, nil
	}
}

func stamp(ctx context.Context) (context.Context, error) {
	t, err := fence.GateOf(ctx).Token()
	if err != nil {
		return nil, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	md = md.Copy()
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(Key, t.String())
	return metadata.NewOutgoingContext(ctx, md), nil
}

type clientStream struct {
	grpc.ClientStream
	gate   fence.Gate
	cancel context.CancelFunc
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
	if _, err := s.gate.Token(); err != nil {
		s.cancel()
		return err
	}
	return nil
}
