package fencegrpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/route/viewctx"
)

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
