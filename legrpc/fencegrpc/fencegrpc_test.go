package fencegrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/c8e606e4/leaderelection"
	"github.com/c8e606e4/leaderelection/fence"
	"github.com/c8e606e4/leaderelection/internal/test/suite/fencetest"
	"github.com/c8e606e4/leaderelection/legrpc/fencegrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// description is of a service whose Say answers with the token that came, and
// whose Talk echoes.
var description = grpc.ServiceDesc{
	ServiceName: "test.Test", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		return next(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/test.Test/Say"}, func(ctx context.Context, _ any) (any, error) {
			t, _ := fence.TokenFrom(ctx)
			return wrapperspb.String(t.String()), nil
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(m); err != nil {
				return err
			}
		}
	}}},
}

// listen starts a fenced server, and returns its address.
func listen(t *testing.T, c fence.Checker) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServerInterceptor(c, nil)), grpc.StreamInterceptor(fencegrpc.StreamServerInterceptor(c, nil)))
	server.RegisterService(&description, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return l.Addr().String()
}

// serve starts a fenced server, and returns a channel to it.
func serve(t *testing.T, c fence.Checker, client ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(listen(t, c), append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/test.Test/Say", wrapperspb.String(""), out)
	return out.Value, err
}

type broken struct{}

func (broken) Check(context.Context, fence.Token) error        { return errors.New("the database is gone") }
func (b broken) Peek(ctx context.Context, t fence.Token) error { return b.Check(ctx, t) }

func TestServer(t *testing.T) {
	conn := serve(t, fence.NewGuard("orders", 5))
	for _, c := range []struct {
		tokens  []string
		code    codes.Code
		refused error
	}{
		{[]string{"orders:5"}, codes.OK, nil},
		{[]string{"orders:4"}, codes.Aborted, fence.ErrStale},
		{nil, codes.FailedPrecondition, fence.ErrNoToken},
		{[]string{"five"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"orders:9223372036854775808"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{":7"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"orders:5", "orders:6"}, codes.InvalidArgument, fence.ErrMalformed},
		{[]string{"users:9"}, codes.InvalidArgument, fence.ErrOtherElection},
	} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{fencegrpc.Key: c.tokens})
		out, err := say(ctx, conn)
		if status.Code(err) != c.code || fencegrpc.Refused(err) != c.refused || err == nil && out != "orders:5" {
			t.Errorf("%v: %q, %v", c.tokens, out, err)
		}
		s, err := conn.NewStream(ctx, &description.Streams[0], "/test.Test/Talk")
		if err == nil {
			_ = s.CloseSend()
			err = s.RecvMsg(new(wrapperspb.StringValue))
		}
		if c.code == codes.OK && !errors.Is(err, io.EOF) || c.code != codes.OK && (status.Code(err) != c.code || fencegrpc.Refused(err) != c.refused) {
			t.Errorf("stream %v: %v", c.tokens, err)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), fencegrpc.Key, "orders:5")
	if _, err := say(ctx, serve(t, broken{})); status.Code(err) != codes.Unavailable || fencegrpc.Refused(err) != nil {
		t.Error(err)
	}
	if err := fencegrpc.Refused(status.Error(codes.Aborted, "the application's own")); err != nil {
		t.Error(err)
	}
}

func TestClientAndServer(t *testing.T) {
	guard := fence.NewGuard("orders", 0)
	conn := serve(t, guard, grpc.WithChainUnaryInterceptor(fencegrpc.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(fencegrpc.StreamClientInterceptor()))
	gate, end := fencetest.Lead(t)
	ctx := fence.WithGate(t.Context(), gate)
	// A token of the caller's own making does not get through.
	if out, err := say(metadata.AppendToOutgoingContext(ctx, fencegrpc.Key, "orders:99"), conn); out != "orders:2" || err != nil {
		t.Fatal(out, err)
	}
	open := func(ctx context.Context) (grpc.ClientStream, error) {
		return conn.NewStream(ctx, &description.Streams[0], "/test.Test/Talk")
	}
	echo := func(s grpc.ClientStream) error {
		if err := s.SendMsg(wrapperspb.String("x")); err != nil {
			return err
		}
		return s.RecvMsg(new(wrapperspb.StringValue))
	}
	deposed, err := open(ctx)
	if err == nil {
		err = echo(deposed)
	}
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := open(ctx)
	if err == nil {
		err = echo(stopped)
	}
	if err != nil {
		t.Fatal(err)
	}

	// Another leadership writes: the stream of this one ends with its next message.
	if err := guard.Check(t.Context(), fence.Token{Election: "orders", Number: 3}); err != nil {
		t.Fatal(err)
	}
	if err := echo(deposed); !errors.Is(fencegrpc.Refused(err), fence.ErrStale) {
		t.Errorf("the deposed leader's stream: %v", err)
	}
	if _, err := say(ctx, conn); status.Code(err) != codes.Aborted {
		t.Errorf("the deposed leader's call: %v", err)
	}

	// The view has ended: nothing leaves any more.
	end()
	if _, err := say(ctx, conn); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := open(ctx); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("a stream after the end: %v", err)
	}
	if err := stopped.SendMsg(wrapperspb.String("late")); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("a message after the end: %v", err)
	}
	if err := stopped.CloseSend(); !errors.Is(err, leaderelection.ErrNotLeading) {
		t.Errorf("closing after the end: %v", err)
	}
	if _, err := say(t.Context(), conn); !errors.Is(err, fence.ErrNoGate) {
		t.Errorf("outside any leadership: %v", err)
	}
}

// carries is the ctx of a call that came with a token, or with none.
func carries(t *testing.T, token string) context.Context {
	md := metadata.MD{}
	if token != "" {
		md.Set(fencegrpc.Key, token)
	}
	return metadata.NewIncomingContext(t.Context(), md)
}

// handle has a call of a method handled, which does nothing.
func handle(ctx context.Context, unary grpc.UnaryServerInterceptor, method string) error {
	_, err := unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	return err
}
